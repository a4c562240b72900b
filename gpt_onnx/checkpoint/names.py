"""Lines of a table of names: a pattern of theirs, and our name for it.

    Name("model.layers.{layer}.self_attn.q_proj.weight", "h.{layer}.attn.q.weight")

``{layer}`` and ``{head}`` stand for a number each, the same on both sides.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from gpt_onnx.checkpoint.patterns import PLACES
from gpt_onnx.errors import CheckpointError

_PLACE = re.compile(r"\{(\w*)\}")
_MODULES = (
    "h.{layer}.ln_1",
    *(f"h.{{layer}}.attn.{part}" for part in ("c_attn", "qkv_by_head", "q", "k", "v", "kv", "c_proj")),
    *(f"h.{{layer}}.attn.{part}.{{head}}" for part in "qkv"),
    "h.{layer}.ln_2",
    *(f"h.{{layer}}.mlp.{part}" for part in ("c_fc", "c_gate", "c_proj")),
    "ln_f",
    "lm_head",
)
OURS = (
    "wte.weight",
    "wpe.weight",
    *(f"{module}.{kind}" for module in _MODULES for kind in ("weight", "bias")),
    "lm_head_bias",
)
"""Every name that may stand on our side; a configuration has some of them."""


def pattern(text: str) -> re.Pattern[str]:
    """Return the expression of a name in which {layer} and {head} stand for numbers."""
    escaped = re.escape(text)
    for place in PLACES:
        escaped = escaped.replace(re.escape(f"{{{place}}}"), f"(?P<{place}>[0-9]+)", 1)
    return re.compile(escaped)


_OURS = tuple(map(pattern, OURS))  # once: a table may have thousands of lines


def places_in(text: str) -> list[str]:
    """Return the places of a pattern, each once.

    Raises:
        CheckpointError: if one is unknown or occurs twice.
    """
    found: list[str] = _PLACE.findall(text)
    for place in found:
        if place not in PLACES:
            raise CheckpointError(f"{text!r} has the place {{{place}}}; known are {{layer}} and {{head}}.")
        if found.count(place) > 1:
            raise CheckpointError(f"{text!r} has {{{place}}} twice; a pattern has each place once.")
    return found


def _check_ours(name: str) -> None:
    numbered = _PLACE.sub("0", name)
    if any(known.fullmatch(numbered) for known in _OURS):
        return
    near = difflib.get_close_matches(name, OURS, n=3) or OURS[:3]
    raise CheckpointError(f"{name!r} is no name of a GPT's weight; the nearest are {', '.join(near)}.")


@dataclass(frozen=True, slots=True)
class Name:
    """One line of a table.

    Raises:
        CheckpointError: if our name does not exist, or a place stands on one side alone.
    """

    theirs: str
    ours: str
    transposed: bool = False
    """Whether they store (in, out), as GPT-2's Conv1D does."""

    def __post_init__(self) -> None:
        theirs, ours = places_in(self.theirs), places_in(self.ours)
        _check_ours(self.ours)
        for place in PLACES:
            if (place in theirs) != (place in ours):
                raise CheckpointError(
                    f"{self.theirs!r} = {self.ours!r} has {{{place}}} on one side alone; it stands for the "
                    "same number on both."
                )


@dataclass(frozen=True, slots=True)
class Naming:
    """A table of names."""

    names: tuple[Name, ...]
    ignored: tuple[str, ...] = ()
    """Patterns of stored tensors that are no weights, such as causal masks; {layer} may stand in them."""

    def ignores(self, name: str) -> bool:
        """Whether a stored name is on the list of those that are no weights."""
        return any(pattern(text).fullmatch(name) for text in self.ignored)
