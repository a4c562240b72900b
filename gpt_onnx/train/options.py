"""What a training run is told, and what it tells.

>>> TrainOptions(corpus=(Path("corpus"),), output=Path("gpt"), epochs=2.0).batch_size
8
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpt_onnx.errors import InputError

PRECISIONS = ("fp32", "bf16")
DEFAULT_EPOCHS = 5.0

_Range = tuple[str, Callable[[float], bool]]
_POSITIVE: _Range = ("above 0 and finite", lambda value: 0 < value < math.inf)
_COUNT: _Range = ("at least 1", lambda value: 1 <= value < math.inf)
_FRACTION: _Range = ("from 0 to 1", lambda value: 0 <= value <= 1)
_RANGES: Mapping[str, _Range] = {
    "steps": _COUNT,
    "tokens": _COUNT,
    "epochs": _POSITIVE,
    "batch_size": _COUNT,
    "learning_rate": _POSITIVE,
    "gradient_clip": _POSITIVE,
    "validate_every": _COUNT,
    "final_learning_rate": _FRACTION,
    "weight_decay": _FRACTION,
    "warmup": _FRACTION,
    "dropout": ("at least 0 and below 1", lambda value: 0 <= value < 1),
    "held_out": ("above 0 and below 1", lambda value: 0 < value < 1),
    "seed": (f"from 0 to {2**63 - 1}", lambda value: 0 <= value < 2**63),
}
"""Of each number: the range in words, and whether a value is in it; NaN is in none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """Everything that decides what a run computes; equal options give equal weights on one machine.

    Raises:
        InputError: if a value is out of its range, or two of steps, tokens and epochs are given.
    """

    corpus: tuple[Path, ...]
    """Files of UTF-8 text, or folders of ``.txt`` files, one document each; one named twice counts twice."""
    output: Path
    """The checkpoint to make."""
    validation: tuple[Path, ...] = ()
    """Like ``corpus``; empty: ``held_out`` of the corpus's documents."""
    held_out: float = 0.05
    """Fraction of the documents, chosen by the seed, that validates where no other text does."""
    config: str = "sotu"
    """A named configuration, or a TOML or JSON file; not looked at where ``init`` brings its own."""
    init: Path | None = None
    """A checkpoint to start from, in place of random weights; its configuration and tokenizer are kept."""
    dropout: float | None = None
    """In place of the configuration's; None keeps it."""
    steps: int | None = None
    """Optimizer steps. At most one of steps, tokens and epochs; none: DEFAULT_EPOCHS."""
    tokens: int | None = None
    """Training tokens to see, rounded up to whole steps."""
    epochs: float | None = None
    """Tokens to see as a multiple of the training tokens."""
    batch_size: int = 8
    """Sequences of context_length tokens in a step."""
    learning_rate: float = 1e-3
    """The highest, after the warm-up."""
    final_learning_rate: float = 0.02
    """The lowest, at the last step, as a fraction of the highest."""
    warmup: float = 0.02
    """Fraction of the steps in which the learning rate rises from zero."""
    weight_decay: float = 0.1
    """On matrices only, not on biases and norms."""
    gradient_clip: float = 1.0
    """Largest norm of the gradient."""
    precision: str = "fp32"
    """One of PRECISIONS: what matrices are multiplied in; weights and their updates are float32 always."""
    validate_every: int = 250
    """Steps between validations, each of which saves the state."""
    seed: int = 0
    """Of the initial weights, the batches, dropout and the choice of held-out documents."""
    store: str = "fp32"
    """How the checkpoint's weights are stored: fp32, fp16 or bf16."""

    def __post_init__(self) -> None:
        if not self.corpus:
            raise InputError("there is no corpus; name a file or a folder of text.")
        if sum(value is not None for value in (self.steps, self.tokens, self.epochs)) > 1:
            raise InputError(
                "more than one of steps, tokens and epochs is given; they say the same thing: give one."
            )
        for name, (words, holds) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not holds(value):
                raise InputError(f"{name} is {value}; it must be {words}.")
        if self.precision not in PRECISIONS:
            raise InputError(f"precision is {self.precision!r}; known are {', '.join(PRECISIONS)}.")

    def total_steps(self, training_tokens: int, context_length: int) -> int:
        """Return how many steps the run has."""
        if self.steps is not None:
            return self.steps
        epochs = DEFAULT_EPOCHS if self.epochs is None else self.epochs
        tokens = epochs * training_tokens if self.tokens is None else self.tokens
        return max(1, math.ceil(tokens / (self.batch_size * context_length)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainProgress:
    """Where a run stands, after each step."""

    step: int
    """Steps done."""
    total_steps: int
    """Steps in all."""
    loss: float
    """Of the last batch, nats a token."""
    tokens_per_s: float
    """Training tokens a second since the process began, validation included."""
    validation_loss: float | None
    """Nats a token; None where this step did not validate."""
    bits_per_byte: float | None
    """Of the validation text; None likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport:
    """What came of a run."""

    steps: int
    """Optimizer steps."""
    tokens_seen: int
    """Training tokens, repeats counted."""
    training_tokens: int
    """Tokens in the corpus."""
    parameters: int
    """Unique parameters of the model."""
    best_step: int
    """The step whose weights were kept."""
    validation_loss: float
    """Nats a token of the weights as stored, computed in float32."""
    bits_per_byte: float
    """Likewise."""
    validation_bytes: int
    """Bytes of validation text."""
    validation_tokens: int
    """Tokens of validation text."""
    seconds: float
    """Wall time of all the run's processes, validation included."""
