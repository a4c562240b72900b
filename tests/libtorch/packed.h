// GPT-2's layout, as in nanoGPT: query, key and value in one projection, learned positions, a tied or a free head.
#pragma once

#include "settings.h"

namespace packed {

using torch::Tensor;

struct AttentionImpl : torch::nn::Module {
  torch::nn::Linear c_attn{nullptr}, c_proj{nullptr};
  int64_t heads;
  double scale;

  explicit AttentionImpl(const Settings& s) : heads(s.number("heads")), scale(s.scale()) {
    const auto width = s.number("width");
    auto options = torch::nn::LinearOptions(width, 3 * width).bias(s.number("head_bias"));
    c_attn = register_module("c_attn", torch::nn::Linear(options));
    c_proj = register_module("c_proj", torch::nn::Linear(width, width));
    if (s.number("mask")) {
      const auto length = s.number("context");
      register_buffer("bias", causal_mask(length).view({1, 1, length, length}));
    }
  }

  Tensor forward(const Tensor& x) {
    const auto batch = x.size(0), length = x.size(1), width = x.size(2);
    auto parts = c_attn(x).split(width, 2);
    for (auto& part : parts) part = part.view({batch, length, heads, width / heads}).transpose(1, 2);
    auto scores = torch::matmul(parts[0], parts[1].transpose(-2, -1)) * scale;  // (B, H, S, S)
    scores = scores.masked_fill(causal_mask(length) == 0, -std::numeric_limits<float>::infinity());
    auto y = torch::matmul(torch::softmax(scores, -1), parts[2]);
    return c_proj(y.transpose(1, 2).contiguous().view({batch, length, width}));
  }
};
TORCH_MODULE(Attention);

struct MLPImpl : torch::nn::Module {
  torch::nn::Linear c_fc{nullptr}, c_proj{nullptr};
  std::string activation;

  explicit MLPImpl(const Settings& s) : activation(s.word("activation")) {
    c_fc = register_module("c_fc", torch::nn::Linear(s.number("width"), s.number("hidden")));
    c_proj = register_module("c_proj", torch::nn::Linear(s.number("hidden"), s.number("width")));
  }

  Tensor forward(const Tensor& x) { return c_proj(activate(activation, c_fc(x))); }
};
TORCH_MODULE(MLP);

struct BlockImpl : torch::nn::Module {
  torch::nn::LayerNorm ln_1{nullptr}, ln_2{nullptr};
  Attention attn{nullptr};
  MLP mlp{nullptr};

  explicit BlockImpl(const Settings& s) {
    auto norm = torch::nn::LayerNormOptions({s.number("width")});
    ln_1 = register_module("ln_1", torch::nn::LayerNorm(norm));
    attn = register_module("attn", Attention(s));
    ln_2 = register_module("ln_2", torch::nn::LayerNorm(norm));
    mlp = register_module("mlp", MLP(s));
  }

  Tensor forward(Tensor x) {
    x = x + attn(ln_1(x));
    return x + mlp(ln_2(x));
  }
};
TORCH_MODULE(Block);

struct GPT : Model {
  torch::nn::Embedding wte{nullptr}, wpe{nullptr};
  torch::nn::ModuleList h;
  torch::nn::LayerNorm ln_f{nullptr};
  torch::nn::Linear lm_head{nullptr};

  explicit GPT(const Settings& s) {
    const auto width = s.number("width");
    wte = register_module("wte", torch::nn::Embedding(s.number("vocab"), width));
    wpe = register_module("wpe", torch::nn::Embedding(s.number("context"), width));
    for (int64_t i = 0; i < s.number("layers"); ++i) h->push_back(Block(s));
    register_module("h", h);
    ln_f = register_module("ln_f", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    if (s.number("tied") == 1) return;  // the head is wte->weight itself, and nothing is registered for it
    auto options = torch::nn::LinearOptions(width, s.number("vocab")).bias(false);
    lm_head = register_module("lm_head", torch::nn::Linear(options));
    if (s.number("tied") == 2) lm_head->weight = wte->weight;  // the registered parameter stays the old tensor
  }

  Tensor forward(Tensor ids) override {
    auto x = wte(ids) + wpe(torch::arange(ids.size(1)));
    for (auto& block : *h) x = block->as<BlockImpl>()->forward(x);
    x = ln_f(x);
    return lm_head ? lm_head(x) : torch::linear(x, wte->weight);
  }
};

}  // namespace packed
