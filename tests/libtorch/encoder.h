// A GPT of LibTorch's own parts: torch::nn::TransformerEncoder under a causal mask, norms after the branches.
#pragma once

#include "settings.h"

namespace encoder {

using torch::Tensor;

struct GPT : Model {
  torch::nn::Embedding embedding{nullptr}, pos_embedding{nullptr};
  torch::nn::TransformerEncoder transformer{nullptr};
  torch::nn::Linear fc{nullptr};

  explicit GPT(const Settings& s) {
    const auto width = s.number("width");
    auto layer = torch::nn::TransformerEncoderLayerOptions(width, s.number("heads"));
    layer.dim_feedforward(s.number("hidden")).dropout(0.0);
    if (s.word("activation") == "gelu") layer.activation(torch::kGELU);
    embedding = register_module("embedding", torch::nn::Embedding(s.number("vocab"), width));
    pos_embedding = register_module("pos_embedding", torch::nn::Embedding(s.number("context"), width));
    auto stack = torch::nn::TransformerEncoderOptions(torch::nn::TransformerEncoderLayer(layer), s.number("layers"));
    transformer = register_module("transformer", torch::nn::TransformerEncoder(stack));
    fc = register_module("fc", torch::nn::Linear(width, s.number("vocab")));
  }

  Tensor forward(Tensor ids) override {
    const auto length = ids.size(1);
    auto x = embedding(ids) * std::sqrt(double(embedding->options.embedding_dim()));
    x = x + pos_embedding(torch::arange(length));
    auto later = torch::triu(torch::ones({length, length}, torch::kBool), 1);
    auto mask = torch::zeros({length, length}, x.options()).masked_fill(later, -INFINITY);
    return fc(transformer(x.transpose(0, 1), mask).transpose(0, 1));  // sequence first inside
  }
};

}  // namespace encoder
