"""From a store and a table of names to a checkpoint, where no file says what the model is.

    reading = reading_of(store, naming)                       # what the tensors say
    question_sheet(reading, options)                          # TOML of a --config file
    assembled(reading, options, path=path, kind="LibTorch archive")

A head that is the token embedding, stored a second time, is found by its values; so is a stored table of
sinusoidal positions, which the exported graph computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpt_onnx.checkpoint.checkpoint import Checkpoint
from gpt_onnx.checkpoint.facts import Facts, facts_of, head_sizes
from gpt_onnx.checkpoint.leftovers import listed
from gpt_onnx.checkpoint.names import Naming
from gpt_onnx.checkpoint.naming import check_naming, matches_of, recipes_of, unnamed
from gpt_onnx.checkpoint.questions import complete, template
from gpt_onnx.checkpoint.readers._reader import Reader, ReadOptions, find_tokenizer
from gpt_onnx.checkpoint.recipe import Floats, Piece, Recipe, alone, same_values
from gpt_onnx.checkpoint.rotary_tables import check_rotary_tables
from gpt_onnx.checkpoint.store import Store
from gpt_onnx.checkpoint.stored_tables import sinusoidal_style_of, without_ones
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError, ConfigError

EMBEDDING, POSITIONS, HEAD, HEAD_BIAS = "wte.weight", "wpe.weight", "lm_head.weight", "lm_head.bias"
TIED_HEAD_BIAS = "lm_head_bias"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a store's tensors say under a table of names."""

    store: Store
    naming: Naming
    facts: Facts
    position_rows: int | None = None
    """Rows of a stored table of sinusoidal positions."""
    notes: tuple[str, ...] = ()


def _without(naming: Naming, ours: str, theirs: str) -> Naming:
    """Leave one weight out: its tensor is another's, or follows a formula."""
    names = tuple(name for name in naming.names if name.ours != ours)
    return Naming(names, (*naming.ignored, theirs))


def _renamed(naming: Naming, old: str, new: str) -> Naming:
    names = (replace(name, ours=new) if name.ours == old else name for name in naming.names)
    return Naming(tuple(names), naming.ignored)


def shapes_of(store: Store, naming: Naming) -> dict[str, tuple[int, ...]]:
    """Return the shapes of stored tensors by our names, as they are here."""
    found = {}
    for ours, match in matches_of(naming, store.tensors).items():
        shape = store.tensors[match.theirs].shape
        found[ours] = shape[::-1] if match.transposed else shape
    if len(shape := found.get(POSITIONS, ())) == 3:
        found[POSITIONS] = tuple(size for size in shape if size != 1)
    return found


def _with_head(reading: Reading) -> Reading:
    """Tie the head to the token embedding where it is missing, or stored with the same values."""
    matches = matches_of(reading.naming, reading.store.tensors)
    if HEAD not in matches:
        return replace(reading, naming=_renamed(reading.naming, HEAD_BIAS, TIED_HEAD_BIAS))
    if EMBEDDING not in matches:
        return reading
    head, embedding = matches[HEAD].theirs, matches[EMBEDDING].theirs
    if not same_values(reading.store, head, embedding):
        return reading
    naming = _renamed(_without(reading.naming, HEAD, head), HEAD_BIAS, TIED_HEAD_BIAS)
    note = f"{head} holds the values of {embedding}: the head is tied to the token embedding."
    return replace(reading, naming=naming, notes=(*reading.notes, note))


def _with_positions(reading: Reading) -> tuple[Reading, dict[str, str]]:
    """Look whether a stored table of positions is the sinusoidal formula, and return what that says."""
    matches = matches_of(reading.naming, reading.store.tensors)
    if POSITIONS not in matches:
        return reading, {}
    name = matches[POSITIONS].theirs
    table = without_ones(reading.store.read(name))
    style = sinusoidal_style_of(table)
    if style is None:
        return reading, {}
    note = f"{name} holds sinusoidal positions ({style}), which the graph computes for any length."
    reading = replace(
        reading,
        naming=_without(reading.naming, POSITIONS, name),
        position_rows=len(table),
        notes=(*reading.notes, note),
    )
    return reading, {"position": "sinusoidal", "sinusoidal_style": style}


def _facts(reading: Reading) -> Facts:
    """Return what the tensors say.

    Raises:
        CheckpointError: if a weight that every GPT has is not named, with the tensors that are not named.
    """
    try:
        return facts_of(shapes_of(reading.store, reading.naming))
    except CheckpointError as exc:
        left = unnamed(reading.naming, reading.store)
        others = f"; not named are {listed(left, {})}" if left else ""
        raise CheckpointError(f"{reading.store.path}: {str(exc).removesuffix('.')}{others}.") from exc


def reading_of(store: Store, naming: Naming) -> Reading:
    """Find out what the tensors say, and that the table names all of them.

    Raises:
        CheckpointError: if tensors are left over or missing.
    """
    reading = _with_head(Reading(store=store, naming=naming, facts=Facts(values={})))
    reading, positions = _with_positions(reading)
    facts = _facts(reading).told(positions)
    reading = replace(reading, facts=facts)
    _check(reading, _stand_in(facts), "these sizes")
    return reading


def _stand_in(facts: Facts) -> GPTConfig:
    """Return a configuration whose shapes are those of the tensors, whatever the open answers are."""
    first = {key: choices[0] for key, choices in facts.choices.items()}
    values = {"n_head": 1, "context_length": 1, **first, "position": "alibi", **facts.values}
    return GPTConfig.from_dict({**head_sizes(facts, values), **values}, origin="its tensors")


def _table(parts: Sequence[Floats]) -> Floats:
    return without_ones(alone(parts))


def _recipes(reading: Reading, config: GPTConfig) -> dict[str, Recipe]:
    recipes = recipes_of(reading.naming, reading.store, config)
    if POSITIONS in recipes:
        (piece,) = recipes[POSITIONS].pieces
        stored = reading.store.tensors[piece.name].shape
        if len(stored) == 3:
            recipes[POSITIONS] = Recipe((Piece(piece.name, stored),), _table)
    return recipes


def _check(reading: Reading, config: GPTConfig, config_name: str) -> dict[str, Recipe]:
    recipes = _recipes(reading, config)
    check_naming(reading.naming, reading.store, config, recipes, config_name=config_name)
    return recipes


def _check_rows(reading: Reading, config: GPTConfig) -> None:
    if reading.position_rows is not None and config.context_length > reading.position_rows:
        raise ConfigError(
            f"context_length is {config.context_length}; the stored table of positions has "
            f"{reading.position_rows} rows, so the model never saw more: correct it."
        )


def assembled(reading: Reading, options: ReadOptions, *, path: Path, kind: str) -> Checkpoint:
    """Return the checkpoint that tensors and the user's answers make together.

    Raises:
        InputError: if a question is open.
        ConfigError: if an answer is not understood, or contradicts a tensor.
        CheckpointError: if an answer asks for other tensors than there are.
    """
    config = complete(reading.facts, options.config, source=path)
    _check_rows(reading, config)
    check_rotary_tables(reading.store, config)
    return Checkpoint(
        path=path,
        kind=kind,
        config=config,
        store=reading.store,
        recipes=_check(reading, config, str(options.config)),
        tokenizer=find_tokenizer(None, options.tokenizer, config),
        notes=reading.notes,
    )


def question_sheet(reading: Reading, options: ReadOptions, *, path: Path) -> str:
    """Return the text of a --config file with what the tensors say and what is to be answered."""
    return template(reading.facts, source=path, file=options.config)


def asking_reader(
    *,
    kind: str,
    summary: str,
    recognises: Callable[[Path], bool],
    understood: Callable[[Path, ReadOptions], Reading],
) -> Reader:
    """Return the reader of sources whose tensors leave questions open.

    Args:
        kind: See Reader.
        summary: See Reader.
        recognises: See Reader.
        understood: Returns what a source's tensors say, or raises what ``Reader.read`` raises.
    """
    return Reader(
        kind=kind,
        summary=summary,
        recognises=recognises,
        read=lambda path, options: assembled(understood(path, options), options, path=path, kind=kind),
        template=lambda path, options: question_sheet(understood(path, options), options, path=path),
    )
