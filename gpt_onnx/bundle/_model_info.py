"""What a manifest says of the model: the sizes that a runtime needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpt_onnx.bundle._rules import COUNT, POSITIVE, Rule, check_fields, choice, optional
from gpt_onnx.errors import BundleError

POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "unknown")
_MODEL_RULES: Mapping[str, Rule] = {
    "vocab_size": POSITIVE,
    "context_length": optional(POSITIVE),
    "position": choice(POSITIONS),
    "position_limit": optional(POSITIVE),
    **dict.fromkeys(("n_layer", "n_kv_head", "head_size", "cache_head_size", "parameters"), COUNT),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Sizes of the model; those that a plain graph does not tell are 0.

    Raises:
        BundleError: if a value is of the wrong kind, or only some sizes of the cache are given.
    """

    vocab_size: int
    """Ids are below it; the last dim of the logits."""
    context_length: int | None
    """Tokens that the model was trained on at once; None: not known."""
    position: str
    """One of POSITIONS."""
    position_limit: int | None
    """The longest sequence that can be computed at all; None: any."""
    n_layer: int
    """Transformer blocks, each with its keys and values."""
    n_kv_head: int
    """Heads of the keys and values."""
    head_size: int
    """Width of one head in the model."""
    cache_head_size: int
    """Width of one head in the graph's cache, zeros after ``head_size``."""
    parameters: int
    """Parameters, each counted once."""

    def __post_init__(self) -> None:
        check_fields(self, _MODEL_RULES, "model.")
        sizes = (self.n_layer, self.n_kv_head, self.head_size, self.cache_head_size)
        if any(sizes) and not all(sizes):
            raise BundleError(
                f"model.n_layer, n_kv_head, head_size and cache_head_size are {sizes}; "
                "either all of them are positive or all are 0."
            )
        if self.cache_head_size < self.head_size:
            raise BundleError(
                f"model.cache_head_size is {self.cache_head_size}; "
                f"it must be at least head_size = {self.head_size}."
            )

    @property
    def cache_elements_per_token(self) -> int:
        """Elements that one token of one sequence takes in the graph's cache, over all layers."""
        return 2 * self.n_layer * self.n_kv_head * self.cache_head_size
