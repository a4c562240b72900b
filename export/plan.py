"""What an export would make, told without making it: ``gpt-onnx export --dry-run``.

>>> plan = plan_export("models/sotu", target="portable")
>>> plan.kind, plan.parameters
('gpt-onnx checkpoint', 5783040)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import ConfigError
from gpt_onnx.parameter_shapes import parameter_shapes

from .build import Planned, planned_weights
from .calibration import note_on_speed, settled
from .footprint import (
    FLOAT32,
    Shapes,
    Stored,
    logits_bytes,
    memory_of_gpt,
    memory_of_module,
    sizes_of_weights,
    stored_bytes,
)
from .gpt_source import Source
from .graphs import check_frozen_length
from .limits import too_large
from .options import DYNAMIC, OF_CHANGED, OF_INTEGERS, ExportOptions, options_of
from .pipeline import check_files, texts_for
from .plan_integers import IntegerPlan, integer_plan, text_read
from .precisions import HALF, PRECISIONS
from .source import Found, SourceLike, look_at
from .targets import find_target

DERIVED: Mapping[str, Callable[[GPTConfig], Any]] = {
    "n_kv_head": lambda config: config.n_head,
    "head_size": lambda config: config.n_embd / config.n_head,
    "d_ff": lambda config: 4 * config.n_embd,
    "rope_size": lambda config: config.head_size,
    "proj_bias": lambda config: config.bias,
    "mlp_bias": lambda config: config.bias,
    "norm_bias": lambda config: config.bias and config.norm != "rmsnorm",
}
"""What a field is where nothing is said of it, as far as others decide it."""
CACHE_BYTES = {HALF: 2}
"""Of a number in the cache, where it is not float32."""
REQUIRED = ("vocab_size", "context_length", "n_embd", "n_layer", "n_head")
NOT_COMPARED = (
    "It will not be compared with the original program's own numbers; --reference FILE does so, a file of "
    "input_ids and logits that the program wrote."
)
INTEGERS_ARE_TRACED = (
    "What int8 and int4 take is told by a dry run with --precision int8 or int4: which weights of a module "
    "can be integers shows when it is traced so."
)
NOT_CHECKED = "It will not be compared with its model (--check none)."


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionPlan:
    """What the weights would take in one precision."""

    precision: str
    weights_bytes: int
    """As they are stored: in the file of weights, or the smallest in the graph."""
    cache_bytes_per_token: int | None
    """For one sequence; None where the graph has no cache."""
    cache_bytes_at_context: int | None
    """For one sequence of context_length tokens."""
    written: bool
    """Whether this version writes it; else it is an estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPlan:
    """What was recognised, and what it would become."""

    name: str
    kind: str
    """What the source was recognised as."""
    config: GPTConfig | None
    """None for a module whose inner structure is not known."""
    parameters: int
    vocab_size: int
    context_length: int | None
    tokenizer: bool
    chat_template: bool
    generation: Mapping[str, Any]
    """What the source says about generation, in the words of generation_config.json."""
    target: str
    layout: str
    check: str
    integers: IntegerPlan | None
    """How weights become integers; None where they do not."""
    text: str | None
    """What quality is measured on, and calibration reads; None where nothing is read."""
    precisions: tuple[PrecisionPlan, ...]
    peak_bytes: int
    """Memory of the export's process at its peak, with --check none; an estimate."""
    peak_bytes_checked: int
    """The same with the gate."""
    notes: tuple[str, ...]
    """Sentences that the user should read."""

    @property
    def told_config(self) -> dict[str, Any]:
        """Return the fields of the configuration that are not the plain defaults."""
        if self.config is None:
            return {}
        values, config = self.config.to_dict(), self.config
        usual = {field.name: field.default for field in dataclasses.fields(config)}
        usual |= {name: of(config) for name, of in DERIVED.items()}
        return {key: value for key, value in values.items() if key in REQUIRED or value != usual[key]}

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values, the configuration whole."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return values | {
            "config": None if self.config is None else self.config.to_dict(),
            "generation": dict(self.generation),
            "integers": None if self.integers is None else dataclasses.asdict(self.integers),
            "precisions": [dataclasses.asdict(precision) for precision in self.precisions],
            "notes": list(self.notes),
        }


def _traced(source: Source, options: ExportOptions) -> Planned | None:
    """Trace a module whose inner structure is not known; of our own GPT all is known without."""
    return planned_weights(source, options) if source.config is None else None


def _shapes(source: Source, traced: Planned | None) -> Shapes:
    """Return the shape of every weight that the bundle stores, each once."""
    if source.config is not None:
        return parameter_shapes(source.config)
    names = dict.fromkeys(source.parameter_names().values())
    return {name: source.weight(name).shape for name in names if traced is None or name in traced.names}


def _stored(options: ExportOptions) -> Iterator[tuple[str, Stored]]:
    """Yield each precision and how its weights are stored; options of integers count for the one asked."""
    target = find_target(options.target)
    for name in PRECISIONS:
        plain: dict[str, Any] = dict.fromkeys((*OF_INTEGERS, *OF_CHANGED)) | {"precision": name}
        choice = None
        if name in target.precisions:
            asked = options if name == options.precision else _other(options, plain)
            choice = asked.choice
        size = FLOAT32 // 2 if name == HALF else FLOAT32
        yield name, Stored(choice=choice, matrix_bytes=size, standard=not target.fuses)


def _other(options: ExportOptions, changes: Mapping[str, Any]) -> ExportOptions:
    """Return the options of another precision, in an opset and a length that it has."""
    return dataclasses.replace(options, **changes, opset=None, seq_len=DYNAMIC, batch_size=DYNAMIC)


def _sizes_of_traced(traced: Planned, options: ExportOptions, shapes: Shapes) -> Iterator[tuple[str, int]]:
    """Yield the precision that was traced and those of floats; a trace says which weights become integers."""
    for name, stored in _stored(options):
        if name == options.precision:
            yield name, stored_bytes(traced.sizes)
        elif stored.choice is None:
            yield name, stored_bytes([*sizes_of_weights(shapes, stored), *traced.tables])


def _sizes(options: ExportOptions, shapes: Shapes) -> Iterator[tuple[str, int]]:
    """Yield each precision that our GPT can have, and the bytes of its weights.

    Raises:
        ConfigError: if it cannot have the one that is asked for.
    """
    for name, stored in _stored(options):
        try:
            yield name, stored_bytes(sizes_of_weights(shapes, stored))
        except ConfigError:
            if name == options.precision:
                raise


def _precisions(
    source: Source, options: ExportOptions, shapes: Shapes, traced: Planned | None
) -> tuple[PrecisionPlan, ...]:
    info = source.model_info(options)
    numbers = 2 * info.n_layer * info.n_kv_head * info.cache_head_size if options.kv_cache else 0
    length = options.frozen("seq_len") or info.context_length
    return tuple(
        PrecisionPlan(
            precision=name,
            weights_bytes=size,
            cache_bytes_per_token=numbers * CACHE_BYTES.get(name, FLOAT32) or None,
            cache_bytes_at_context=numbers * CACHE_BYTES.get(name, FLOAT32) * (length or 0) or None,
            written=name in find_target(options.target).precisions,
        )
        for name, size in (_sizes_of_traced(traced, options, shapes) if traced else _sizes(options, shapes))
    )


def _too_large(options: ExportOptions, shapes: Shapes, traced: Planned | None) -> str | None:
    """Say that the export will refuse a weight."""
    sizes = traced.sizes if traced else sizes_of_weights(shapes, dict(_stored(options))[options.precision])
    target = find_target(options.target)
    return too_large("the largest weight", max(sizes, default=0), target, options.largest_bits)


def _notes(found: Found, options: ExportOptions, refusal: str | None) -> tuple[str, ...]:
    notes = [*found.source.notes, *([refusal] if refusal else []), *note_on_speed(options)]
    if found.source.config is None and options.choice is None:
        notes.append(INTEGERS_ARE_TRACED)
    if options.check == "none":
        notes.append(NOT_CHECKED)
    elif options.reference is None and not found.is_original:
        notes.append(NOT_COMPARED)
    return tuple(notes)


def plan_export(source: SourceLike, **options: Any) -> ExportPlan:
    """Look at a source and say what an export would make of it; nothing is written, and no weight is kept.

    A module of the user's own is traced, as an export does: what of it is stored no one else knows.

    Args:
        source: As for ``export_bundle``.
        **options: Fields of ExportOptions.

    Raises:
        ConfigError, InputError, CheckpointError, ExportError: as ``export_bundle`` would before it writes.
    """
    chosen = options_of(options)
    check_files(chosen)
    found = look_at(source, chosen)
    model = found.source
    info = model.model_info(chosen)
    if chosen.calibration is not None:
        texts_for(model, settled(model, chosen))  # which refuses what is too little
    check_frozen_length(chosen, info.position_limit)
    traced = _traced(model, chosen)
    shapes = _shapes(model, traced)
    memory = memory_of_module if model.config is None else memory_of_gpt
    return ExportPlan(
        name=model.name,
        kind=found.kind,
        config=model.config,
        parameters=info.parameters,
        vocab_size=info.vocab_size,
        context_length=info.context_length,
        tokenizer=model.tokenizer is not None,
        chat_template=model.tokenizer is not None and bool(model.tokenizer.config.get("chat_template")),
        generation=dict(model.generation),
        target=chosen.target,
        layout=chosen.layout if model.config is not None else "plain",
        check=chosen.check,
        integers=integer_plan(model, chosen, shapes, traced),
        text=text_read(model, chosen),
        precisions=_precisions(model, chosen, shapes, traced),
        peak_bytes=memory(shapes, logits=None),
        peak_bytes_checked=memory(
            shapes, logits=logits_bytes(info.vocab_size, info.context_length, info.parameters)
        ),
        notes=_notes(found, chosen, _too_large(chosen, shapes, traced)),
    )
