// What a GPT of these tests is made of, and the flags that say it: --name=value.
#pragma once

#include <torch/torch.h>

#include <map>
#include <stdexcept>
#include <string>

struct Settings {
  std::map<std::string, std::string> words = {
      {"kind", "scratch"},          // scratch, packed or encoder
      {"position", "sinusoidal"},   // sinusoidal, concatenated, buffer or learned
      {"activation", "gelu"},       // relu, gelu or gelu_tanh
      {"scale", "head_size"},       // head_size or n_embd: what stands under the root
      {"out", "."},                 // folder to write into
  };
  std::map<std::string, int64_t> numbers = {
      {"vocab", 53},     {"context", 192}, {"width", 24}, {"layers", 2}, {"heads", 3},     {"hidden", 80},
      {"head_bias", 1},  // of the query, key and value projections
      {"mask", 0},       // whether a causal mask is registered as a buffer
      {"tied", 0},       // 1: no head is registered; 2: one is, and its weight is assigned to
      {"prompt", 5},     {"tokens", 128},  {"seed", 0},
  };

  const std::string& word(const std::string& name) const { return words.at(name); }
  int64_t number(const std::string& name) const { return numbers.at(name); }
  int64_t head_size() const { return number("width") / number("heads"); }
  double scale() const {
    return 1.0 / std::sqrt(double(word("scale") == "n_embd" ? number("width") : head_size()));
  }
};

inline Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto end = std::min(flag.find('='), flag.size());
    const auto name = flag.substr(2, end - 2), value = flag.substr(std::min(end + 1, flag.size()));
    if (settings.words.count(name)) {
      settings.words[name] = value;
    } else if (settings.numbers.count(name)) {
      settings.numbers[name] = std::stoll(value);
    } else {
      throw std::invalid_argument("no such flag: " + name);
    }
  }
  return settings;
}

// Every GPT here: token ids (B, S) in, logits (B, S, V) out.
struct Model : torch::nn::Module {
  virtual torch::Tensor forward(torch::Tensor ids) = 0;
};

inline torch::Tensor activate(const std::string& name, const torch::Tensor& x) {
  if (name == "relu") return torch::relu(x);
  return torch::gelu(x, name == "gelu_tanh" ? "tanh" : "none");
}

inline torch::Tensor causal_mask(int64_t length) {
  return torch::tril(torch::ones({length, length}));
}
