"""What ``export_bundle`` can be asked for."""

from __future__ import annotations

import dataclasses
import math
import operator
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_onnx.bundle._quantization_info import ACCURACY_LEVELS, BLOCK_SIZES
from gpt_onnx.checkpoint.readers import ReadOptions
from gpt_onnx.errors import ConfigError

from .precisions import FLOAT, HALF, PRECISIONS, find_precision
from .quantize.choice import Choice
from .quantize.quantizers import find_quantizer
from .targets import IR_VERSIONS, TARGETS, find_target
from .wording import either

DYNAMIC = "dynamic"
PATHS = ("reference", "tokenizer", "config", "names", "calibration")
OF_INTEGERS = ("block_size", "accuracy_level", "quantizer", "head_precision")
"""Options that say something only where weights become integers."""
OF_CHANGED = ("calibration", "max_kl")
"""Options that say something only where weights are not what they were."""
CHECK_LEVELS = ("none", "quick", "standard", "deep")
LARGEST: Mapping[str, int] = {"seq_len": 2**20, "batch_size": 2**16}
"""The largest size that a graph can be frozen at; positions are exact up to 2^20."""


def _checked_size(name: str, value: Any, largest: int) -> int | str:
    """Return "dynamic" or an int; an integer of numpy is one as well."""
    if isinstance(value, str) and value == DYNAMIC:
        return DYNAMIC
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ConfigError(f"{name} is {value!r}; it must be 'dynamic' or an integer of at least 1.")
    if number > largest:
        raise ConfigError(f"{name} is {value!r}; a graph can be frozen at no more than {largest}.")
    return number


def _checked_path(name: str, value: Any) -> Path | None:
    """Return a path; of text, or as it is."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike) or isinstance(os.fspath(value), bytes) or not str(value):
        raise ConfigError(f"{name} is {value!r}; it must be a path.")
    return Path(value)


def _check_head(name: object) -> None:
    """Refuse what the head cannot be beside integer weights."""
    if find_precision(name).name == HALF:
        raise ConfigError(f"head_precision is {name!r}; beside integers it is fp32, int8 or int4.")


def _is_positive(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value < math.inf  # type: ignore[operator]  # NaN fails the comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The options of an export; the defaults are those of the command line.

    Raises:
        ConfigError: if a value is out of its range.
    """

    target: str = "cpu"
    """A name in TARGETS."""
    seq_len: int | str = DYNAMIC
    """"dynamic", or the one sequence length of a frozen graph."""
    batch_size: int | str | None = None
    """"dynamic", or the one batch size of a frozen graph; None: 1 where seq_len is frozen, else dynamic."""
    kv_cache: bool = True
    """Whether the graph takes and returns keys and values; without, it is input_ids -> logits."""
    opset: int | None = None
    """Version of the standard operators: one of the target's; None: its default."""
    check: str = "standard"
    """How thoroughly the graph is compared with the original: one of CHECK_LEVELS."""
    reference: Path | str | None = None
    """A file with input_ids and logits that the original program wrote, to compare with as well."""
    tokenizer: Path | str | None = None
    """A tokenizer to use instead of the source's own; "none" for no tokenizer."""
    config: Path | str | None = None
    """A configuration (JSON or TOML) for a source that does not tell its own."""
    names: Path | str | None = None
    """A table (TOML) from the source's names of tensors to ours, for a source of another naming."""
    precision: str = FLOAT
    """How weights are stored: a name in PRECISIONS."""
    block_size: int | None = None
    """Weights that share a scale; None: the largest usual one that divides the model's sizes."""
    accuracy_level: int | None = None
    """Of products with integer weights: 4 rounds activations to int8, 0 does not; None: 4."""
    quantizer: str | None = None
    """How integers are chosen: a name in QUANTIZERS; None: the precision's default."""
    head_precision: str | None = None
    """The precision of the head and the embedding; None: int8, the more sensitive of the two."""
    calibration: Path | str | None = None
    """Text (UTF-8) or ids (.npy) to calibrate with and to measure quality on; None: the text that ships."""
    max_kl: float | None = None
    """The largest mean KL divergence from the float32 model that is published; None: any."""
    overwrite: bool = False
    """Whether an older bundle at the destination is replaced."""

    def __post_init__(self) -> None:
        find_target(self.target)
        if self.batch_size is None:
            object.__setattr__(self, "batch_size", DYNAMIC if self.seq_len == DYNAMIC else 1)
        for name, largest in LARGEST.items():
            object.__setattr__(self, name, _checked_size(name, getattr(self, name), largest))
        for name in PATHS:
            object.__setattr__(self, name, _checked_path(name, getattr(self, name)))
        for name in ("kv_cache", "overwrite"):
            if type(getattr(self, name)) is not bool:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be true or false.")
        if not (isinstance(self.check, str) and self.check in CHECK_LEVELS):
            raise ConfigError(f"check is {self.check!r}; known are {', '.join(CHECK_LEVELS)}.")
        self._check_integers()
        self._check_opset()
        if self.check == "none" and self.reference is not None:
            levels = ", ".join(CHECK_LEVELS[1:])
            raise ConfigError(
                f"check is 'none' and a reference is given, which {levels} look at; choose one of them."
            )

    def _check_integers(self) -> None:
        """Refuse a precision that the target lacks, and options of integers where there are none."""
        target = find_target(self.target)
        if find_precision(self.precision).name not in target.precisions:
            others = [other.name for other in TARGETS.values() if self.precision in other.precisions]
            raise ConfigError(
                f"the precision is {self.precision!r} and target {target.name} has "
                f"{', '.join(target.precisions)}; choose one of them, or target {either(others)}."
            )
        if find_precision(self.precision).bits is None:
            self._refuse(OF_INTEGERS, [name for name in target.precisions if find_precision(name).bits])
        if self.precision == FLOAT:
            self._refuse(OF_CHANGED, [name for name in target.precisions if name != FLOAT])
            return
        if self.block_size is not None and self.block_size not in BLOCK_SIZES:
            sizes = ", ".join(str(size) for size in BLOCK_SIZES)
            raise ConfigError(f"block_size is {self.block_size!r}; it must be one of {sizes}.")
        if self.accuracy_level is not None and self.accuracy_level not in ACCURACY_LEVELS:
            raise ConfigError(f"accuracy_level is {self.accuracy_level!r}; it must be 0 or 4.")
        if self.quantizer is not None:
            find_quantizer(self.quantizer)
        if self.head_precision is not None:
            _check_head(self.head_precision)
        if self.max_kl is not None and not _is_positive(self.max_kl):
            raise ConfigError(f"max_kl is {self.max_kl!r}; it must be a positive number.")
        if self.frozen("seq_len") == 1:
            raise ConfigError(
                f"seq_len is 1, and the quality of {self.precision} is measured on sequences of at least 2; "
                "freeze a longer one, or keep fp32."
            )

    def _refuse(self, names: tuple[str, ...], precisions: list[str]) -> None:
        """Refuse options that say something of other precisions only."""
        for name in names:
            if (value := getattr(self, name)) is not None:
                shown = str(value) if isinstance(value, Path) else repr(value)
                raise ConfigError(
                    f"{name} is {shown} and the weights stay {self.precision}; choose precision "
                    f"{either(precisions)}."
                )

    def _check_opset(self) -> None:
        """Take the target's default where none is given; refuse one that target or precision lacks."""
        target, precision = find_target(self.target), find_precision(self.precision)
        if self.opset is None:
            object.__setattr__(self, "opset", target.opset)
        if type(self.opset) is not int or self.opset not in target.opsets:
            others = [other.name for other in TARGETS.values() if self.opset in other.opsets]
            raise ConfigError(
                f"opset is {self.opset!r} and target {target.name} has "
                f"{', '.join(str(opset) for opset in sorted(target.opsets))}; choose "
                f"{'one of them' if len(target.opsets) > 1 else target.opset}"
                f"{f', or target {either(others)}' if others else ''}."
            )
        if not target.fuses and self.opset < precision.standard_opset:
            older = [name for name in target.precisions if PRECISIONS[name].standard_opset <= self.opset]
            raise ConfigError(
                f"opset is {self.opset} and precision {precision.name} of target {target.name} needs "
                f"{precision.standard_opset}; choose that, or precision {either(older)}."
            )

    @property
    def changes_weights(self) -> bool:
        """Return whether weights are not the source's, so that the quality is measured."""
        return self.precision != FLOAT

    @property
    def versions(self) -> tuple[int, int]:
        """Return the opset and the IR version of the graphs."""
        assert self.opset is not None
        return self.opset, IR_VERSIONS[self.opset]

    @property
    def choice(self) -> Choice | None:
        """Return how weights become integers; None where they stay float32."""
        precision = find_precision(self.precision)
        if precision.bits is None or precision.quantizer is None:
            return None
        return Choice(
            bits=precision.bits,
            head_bits=find_precision(self.head_precision or precision.head).bits,
            symmetric=precision.symmetric,
            block_sizes=precision.block_sizes if self.block_size is None else (self.block_size,),
            accuracy_level=4 if self.accuracy_level is None else self.accuracy_level,
            quantizer=self.quantizer or precision.quantizer,
        )

    @property
    def largest_bits(self) -> int:
        """Return the bits of a number in the largest matrix; head and embedding have no fewer than others."""
        precision = find_precision(self.head_precision or find_precision(self.precision).head)
        return precision.bits or (16 if precision.name == HALF else 32)

    @property
    def reading(self) -> ReadOptions:
        """Return what is said of the source itself, as readers of checkpoints take it."""
        config, names = (None if path is None else Path(path) for path in (self.config, self.names))
        return ReadOptions(tokenizer=self.tokenizer, config=config, names=names)

    @property
    def layout(self) -> str:
        """Return "plain", "static" or "dynamic": which graphs the bundle has."""
        if not self.kv_cache:
            return "plain"
        return DYNAMIC if self.seq_len == DYNAMIC else "static"

    def frozen(self, name: str) -> int | None:
        """Return the frozen seq_len or batch_size, None where it is dynamic."""
        value = getattr(self, name)
        return None if value == DYNAMIC else int(value)

    @property
    def frozen_sizes(self) -> frozenset[int]:
        """Return the frozen sizes, which a graph may hold as constants."""
        sizes = (self.frozen("seq_len"), self.frozen("batch_size"))
        return frozenset(size for size in sizes if size is not None)

    def recorded(self) -> dict[str, Any]:
        """Return what goes into the manifest: what shapes the bundle, without paths."""
        return {
            "target": self.target,
            "seq_len": self.seq_len,
            "batch_size": self.batch_size,
            "kv_cache": self.kv_cache,
            "check": self.check,
        }


def options_of(values: Mapping[str, Any]) -> ExportOptions:
    """Return options by name.

    Raises:
        ConfigError: if there is no option of a name, or a value is out of its range.
    """
    known = [field.name for field in dataclasses.fields(ExportOptions)]
    if unknown := next((name for name in values if name not in known), None):
        raise ConfigError(f"{unknown!r} is no option of an export; known are {', '.join(known)}.")
    return ExportOptions(**values)
