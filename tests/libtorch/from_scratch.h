// A GPT as people write it from scratch: one module per attention head, sinusoidal positions without parameters.
#pragma once

#include "settings.h"

namespace scratch {

using torch::Tensor;
using torch::indexing::None;
using torch::indexing::Slice;

// PE(pos, 2i) = sin(pos / 10000^(2i / width)), PE(pos, 2i + 1) = cos of it; or all sines, then all cosines.
inline Tensor encoding(int64_t length, int64_t width, torch::Dtype dtype, bool concatenated) {
  auto position = torch::arange(length, torch::dtype(dtype)).unsqueeze(1);
  auto divisor = torch::exp(torch::arange(0, width, 2, torch::dtype(dtype)) * (-std::log(10000.0) / width));
  auto angle = position * divisor;  // (S, width / 2)
  if (concatenated) return torch::cat({torch::sin(angle), torch::cos(angle)}, 1);
  auto pe = torch::zeros({length, width}, torch::dtype(dtype));
  pe.index_put_({Slice(), Slice(0, None, 2)}, torch::sin(angle));
  pe.index_put_({Slice(), Slice(1, None, 2)}, torch::cos(angle));
  return pe;
}

struct PositionalEncodingImpl : torch::nn::Module {
  std::string form;
  Tensor pe;                       // the stored table of --position buffer
  torch::nn::Embedding table{nullptr};

  explicit PositionalEncodingImpl(const Settings& s) : form(s.word("position")) {
    const auto length = s.number("context"), width = s.number("width");
    if (form == "buffer") pe = register_buffer("pe", encoding(length, width, torch::kFloat32, false).unsqueeze(0));
    if (form == "learned") table = register_module("table", torch::nn::Embedding(length, width));
  }

  Tensor forward(const Tensor& x) {
    const auto length = x.size(1);
    if (form == "buffer") return x + pe.index({Slice(), Slice(None, length)});
    if (form == "learned") return x + table(torch::arange(length));
    return x + encoding(length, x.size(2), x.scalar_type(), form == "concatenated");
  }
};
TORCH_MODULE(PositionalEncoding);

struct HeadImpl : torch::nn::Module {
  torch::nn::Linear key{nullptr}, query{nullptr}, value{nullptr};
  double scale;

  explicit HeadImpl(const Settings& s) : scale(s.scale()) {
    auto linear = [&] {
      return torch::nn::LinearOptions(s.number("width"), s.head_size()).bias(s.number("head_bias"));
    };
    key = register_module("key", torch::nn::Linear(linear()));
    query = register_module("query", torch::nn::Linear(linear()));
    value = register_module("value", torch::nn::Linear(linear()));
    if (s.number("mask")) register_buffer("tril", causal_mask(s.number("context")));
  }

  Tensor forward(const Tensor& x) {
    auto scores = torch::matmul(query(x), key(x).transpose(-2, -1)) * scale;  // (B, S, S)
    scores = scores.masked_fill(causal_mask(x.size(1)) == 0, -std::numeric_limits<float>::infinity());
    return torch::matmul(torch::softmax(scores, -1), value(x));
  }
};
TORCH_MODULE(Head);

struct MultiHeadAttentionImpl : torch::nn::Module {
  torch::nn::ModuleList heads;
  torch::nn::Linear proj{nullptr};

  explicit MultiHeadAttentionImpl(const Settings& s) {
    for (int64_t i = 0; i < s.number("heads"); ++i) heads->push_back(Head(s));
    register_module("heads", heads);
    proj = register_module("proj", torch::nn::Linear(s.number("width"), s.number("width")));
  }

  Tensor forward(const Tensor& x) {
    std::vector<Tensor> parts;
    for (auto& head : *heads) parts.push_back(head->as<HeadImpl>()->forward(x));
    return proj(torch::cat(parts, -1));
  }
};
TORCH_MODULE(MultiHeadAttention);

struct BlockImpl : torch::nn::Module {
  MultiHeadAttention mha{nullptr};
  torch::nn::Sequential ff{nullptr};
  torch::nn::LayerNorm ln1{nullptr}, ln2{nullptr};

  explicit BlockImpl(const Settings& s) {
    const auto width = s.number("width"), hidden = s.number("hidden");
    const auto activation = s.word("activation");
    mha = register_module("mha", MultiHeadAttention(s));
    torch::nn::Sequential layers{torch::nn::Linear(width, hidden)};
    if (activation == "relu") layers->push_back(torch::nn::ReLU());
    if (activation == "gelu") layers->push_back(torch::nn::GELU());
    if (activation == "gelu_tanh") layers->push_back(torch::nn::GELU(torch::nn::GELUOptions().approximate("tanh")));
    layers->push_back(torch::nn::Linear(hidden, width));
    layers->push_back(torch::nn::Dropout(0.1));
    ff = register_module("ff", layers);
    ln1 = register_module("ln1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    ln2 = register_module("ln2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  }

  Tensor forward(Tensor x) {
    x = x + mha(ln1(x));
    return x + ff->forward(ln2(x));
  }
};
TORCH_MODULE(Block);

struct GPT : Model {
  torch::nn::Embedding token_embedding{nullptr};
  PositionalEncoding positional_encoding{nullptr};
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm ln_f{nullptr};
  torch::nn::Linear head{nullptr};

  explicit GPT(const Settings& s) {
    const auto width = s.number("width"), vocab = s.number("vocab");
    token_embedding = register_module("token_embedding", torch::nn::Embedding(vocab, width));
    positional_encoding = register_module("positional_encoding", PositionalEncoding(s));
    for (int64_t i = 0; i < s.number("layers"); ++i) blocks->push_back(Block(s));
    register_module("blocks", blocks);
    ln_f = register_module("ln_f", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    head = register_module("head", torch::nn::Linear(width, vocab));
  }

  Tensor forward(Tensor ids) override {
    auto x = positional_encoding(token_embedding(ids));
    for (auto& block : *blocks) x = block->as<BlockImpl>()->forward(x);
    return head(ln_f(x));
  }
};

}  // namespace scratch
