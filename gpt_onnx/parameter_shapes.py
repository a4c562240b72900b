"""The name and shape of every parameter of our GPT, from its configuration alone.

    >>> config = GPTConfig(vocab_size=8, context_length=4, n_embd=2, n_layer=1, n_head=1)
    >>> parameter_shapes(config)["wte.weight"]
    (8, 2)

Standard library only: a device without PyTorch holds a bundle's configuration against its weights by this.
gpt_onnx.model is what the shapes are of; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpt_onnx.config import GATED_ACTIVATIONS, GPTConfig

Shape = tuple[int, ...]
Named = Iterator[tuple[str, Shape]]


def _linear(name: str, outputs: int, inputs: int, *, bias: bool) -> Named:
    yield f"{name}.weight", (outputs, inputs)
    if bias:
        yield f"{name}.bias", (outputs,)


def _norm(name: str, config: GPTConfig) -> Named:
    yield f"{name}.weight", (config.n_embd,)
    if config.norm_bias:
        yield f"{name}.bias", (config.n_embd,)


def _feed_forward(name: str, config: GPTConfig) -> Named:
    entries = ("c_gate", "c_fc") if config.activation in GATED_ACTIVATIONS else ("c_fc",)
    for entry in entries:
        yield from _linear(f"{name}.{entry}", config.d_ff, config.n_embd, bias=config.mlp_bias)
    yield from _linear(f"{name}.c_proj", config.n_embd, config.d_ff, bias=config.mlp_bias)


def _block(name: str, config: GPTConfig) -> Named:
    width = config.n_head * config.head_size
    yield from _norm(f"{name}.ln_1", config)
    yield from _linear(f"{name}.attn.c_attn", config.qkv_size, config.n_embd, bias=config.qkv_bias)
    yield from _linear(f"{name}.attn.c_proj", config.n_embd, width, bias=config.proj_bias)
    yield from _norm(f"{name}.ln_2", config)
    yield from _feed_forward(f"{name}.mlp", config)


def _parameters(config: GPTConfig) -> Named:
    """In the order of ``GPT.state_dict``."""
    if config.tie_embeddings and config.head_bias:
        yield "lm_head_bias", (config.vocab_size,)
    yield "wte.weight", (config.vocab_size, config.n_embd)
    if config.position == "learned":
        yield "wpe.weight", (config.context_length, config.n_embd)
    for layer in range(config.n_layer):
        yield from _block(f"h.{layer}", config)
    if config.final_norm:
        yield from _norm("ln_f", config)
    if not config.tie_embeddings:
        yield from _linear("lm_head", config.vocab_size, config.n_embd, bias=config.head_bias)


def parameter_shapes(config: GPTConfig) -> dict[str, Shape]:
    """Return the shape of every parameter by its name, each once."""
    return dict(_parameters(config))
