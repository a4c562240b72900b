// Makes a GPT, writes it as C++ programs do, and beside it what it computes:
//
//   module.pt      torch::save(module, path)
//   archive.pt     an OutputArchive that holds the module as "model", its optimizer and a counter
//   reference.pt   input_ids (2, 48) and logits in float32, for --reference
//   list.pt        the same, as a std::vector of the two tensors
//   reference64.pt the same as reference.pt, of a copy in float64
//   pickled.pt     the same again, through torch::pickle_save
//   greedy.pt      "prompt", and "tokens", the most likely ones in float64, with their "margins" over the second
#include <fstream>
#include <iostream>

#include "encoder.h"
#include "from_scratch.h"
#include "packed.h"

using torch::Tensor;

static std::shared_ptr<Model> make(const Settings& s) {
  if (s.word("kind") == "packed") return std::make_shared<packed::GPT>(s);
  if (s.word("kind") == "encoder") return std::make_shared<encoder::GPT>(s);
  return std::make_shared<scratch::GPT>(s);
}

// Weights far enough from their start that attention is not uniform and every norm and bias counts.
static void enlarge(Model& model) {
  torch::NoGradGuard guard;
  for (auto& item : model.named_parameters()) {
    const auto& name = item.key();
    auto& weight = item.value();
    if (weight.dim() == 1) {
      weight.add_(0.1 * torch::randn_like(weight));
    } else if (name.find("embedding") == std::string::npos && name.find("table") == std::string::npos) {
      weight.normal_(0.0, 1.6 / std::sqrt(double(weight.size(1))));
    }
  }
}

static std::shared_ptr<Model> in_float64(Model& model, const Settings& s) {
  torch::NoGradGuard guard;
  auto copy = make(s);
  copy->to(torch::kFloat64);
  auto weights = copy->named_parameters();
  for (auto& item : model.named_parameters()) weights[item.key()].copy_(item.value());
  copy->eval();
  return copy;
}

static std::pair<Tensor, Tensor> greedy(Model& model, Tensor ids, int64_t count) {
  const auto start = ids.size(1);
  std::vector<Tensor> margins;
  for (int64_t i = 0; i < count; ++i) {
    auto [values, indices] = model.forward(ids).index({torch::indexing::Slice(), -1}).topk(2);
    ids = torch::cat({ids, indices.slice(1, 0, 1)}, 1);
    margins.push_back(values.index({0, 0}) - values.index({0, 1}));
  }
  return {ids.slice(1, start), torch::stack(margins)};
}

static void write(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors) {
  torch::serialize::OutputArchive archive;
  for (const auto& [name, tensor] : tensors) archive.write(name, tensor, /*is_buffer=*/true);
  archive.save_to(path);
}

static void write_training_state(const std::string& path, Model& model) {
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(0.0));
  for (auto& weight : model.parameters()) weight.mutable_grad() = torch::ones_like(weight);
  optimizer.step();  // a rate of 0 changes no weight, and the moments are there
  torch::serialize::OutputArchive archive, model_archive, optimizer_archive;
  model.save(model_archive);
  optimizer.save(optimizer_archive);
  archive.write("model", model_archive);
  archive.write("optimizer", optimizer_archive);
  archive.write("iteration", torch::tensor(7), /*is_buffer=*/true);
  archive.save_to(path);
}

int main(int argc, char** argv) {
  const auto settings = parse(argc, argv);
  const auto out = settings.word("out") + "/";
  torch::set_num_threads(1);
  torch::manual_seed(settings.number("seed"));
  auto model = make(settings);
  enlarge(*model);
  model->eval();
  torch::save(model, out + "module.pt");
  write_training_state(out + "archive.pt", *model);

  torch::NoGradGuard guard;
  auto exact = in_float64(*model, settings);
  auto ids = torch::randint(settings.number("vocab"), {2, 48}, torch::kInt64);
  auto logits = model->forward(ids), logits64 = exact->forward(ids);
  write(out + "reference.pt", {{"input_ids", ids}, {"logits", logits}});
  torch::save(std::vector<Tensor>{ids, logits}, out + "list.pt");
  write(out + "reference64.pt", {{"input_ids", ids}, {"logits", logits64}});
  c10::Dict<std::string, Tensor> numbers;
  numbers.insert("input_ids", ids);
  numbers.insert("logits", logits);
  const auto pickled = torch::pickle_save(numbers);
  std::ofstream(out + "pickled.pt", std::ios::binary).write(pickled.data(), pickled.size());
  auto prompt = ids.slice(0, 0, 1).slice(1, 0, settings.number("prompt"));
  auto [tokens, margins] = greedy(*exact, prompt, settings.number("tokens"));
  write(out + "greedy.pt", {{"prompt", prompt}, {"tokens", tokens}, {"margins", margins}});
  std::cout << "error of float32: " << (logits - logits64).abs().max().item<double>() << "\n";
}
