"""What is stored under names that are not known, told so that a table of names can be written from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from gpt_onnx.checkpoint.leftovers import LINES, below
from gpt_onnx.checkpoint.likely import PARTS, TURNED, WHOLE, Likely
from gpt_onnx.checkpoint.names import Name, Naming, pattern
from gpt_onnx.checkpoint.names_file import read_names
from gpt_onnx.checkpoint.names_sheet import sheet
from gpt_onnx.checkpoint.naming import unnamed
from gpt_onnx.checkpoint.patterns import Group, Shapes, groups_of, told
from gpt_onnx.checkpoint.spellings import Spelled
from gpt_onnx.checkpoint.store import Store
from gpt_onnx.errors import CheckpointError, InputError

REMEDY = "name the tensors in a table and give it with --names FILE"
APART = {
    "h.{layer}.attn.c_attn.weight": "h.{layer}.attn.c_attn.weight (or h.{layer}.attn.q, .k and .v apart)",
}


class Unnamed:
    """The tensors of a store that a table of names leaves open, and what may be done about them.

    Args:
        store: The tensors.
        naming: What is known; where two lines would be one weight, both are open.
        given: The user's own table, where there is one.
    """

    def __init__(self, store: Store, naming: Naming, given: Path | None = None) -> None:
        self.store, self.given = store, given
        twice = _said_twice(naming.names)
        self._idle = dict.fromkeys(line.theirs for line in naming.names if not _fits(line, store))
        fitting = (line for line in naming.names if line not in twice and line.theirs not in self._idle)
        self.known = Naming(tuple(fitting), naming.ignored)

    @cached_property
    def _open(self) -> Shapes:
        return unnamed(self.known, self.store)

    @cached_property
    def likely(self) -> Likely:
        """What the tensors may be."""
        stored = {name: tensor.shape for name, tensor in self.store.tensors.items()}
        return Likely.of(stored, {name.theirs: name.ours for name in self.known.names})

    @cached_property
    def groups(self) -> list[Group]:
        """The open names, those that differ in numbers alone as one."""
        return groups_of(self._open, self.likely.width)

    def told(self) -> str:
        """Return what is open on both sides, as the inside of a sentence."""
        offers = {group: self.likely.names(group) for group in self.groups[: 10 * LINES]}
        theirs = [f"{group}{_like(names) or ' like no weight of ours'}" for group, names in offers.items()]
        ours = [f"{APART.get(name, name)}{_like(_offered(name, offers))}" for name in self.likely.needed]
        more = sum(group.count for group in self.groups[LINES:])
        theirs = [*theirs[:LINES], *([f"and {more} more"] if more else [])]
        sides = [("it has tensors that are not known by name", theirs), ("nothing is named as", ours)]
        idle = [f"no tensor has the name {told(name)!r} of the table" for name in [*self._idle][:1]]
        clauses = [*(f"{what}: {below(lines)}" for what, lines in sides if lines), *idle]
        return (";\n" if any("\n" in clause for clause in clauses) else "; ").join(clauses)

    def remedy(self) -> str:
        """Return what the user is to do."""
        path = self.store.path
        command = f"gpt-onnx export {path}" if path.exists() or ".py:" in str(path) else ""
        if self.given is not None:
            anew = f" ({command} --names {self.given} --dry-run prints what is left)" if command else ""
            return f"complete {self.given}, whose ignore takes what is no weight{anew}"
        if not command:
            return REMEDY
        return f"{command} --dry-run > names.toml writes a table to fill in; give it with --names FILE"

    def table(self) -> str:
        """Return the text of a table of names (TOML) with open lines to be filled in."""
        own = () if self.given is None else read_names(self.given).ignored
        lines = [(group, self.likely.names(group)) for group in self.groups]
        return sheet(self.store.path, lines, self.known.names, own)


class UnknownNamesError(InputError, CheckpointError):
    """Tensors whose names are not known: the user's table is missing, or the table lacks them."""

    has_lists = True

    def __init__(self, left: Unnamed, reason: str = "") -> None:
        said = "; ".join(filter(None, (reason, left.told())))
        end = ";\n" if "\n" in said else "; "
        super().__init__(f"{left.store.path}: {said}{end}{left.remedy()}.".replace(" \n", "\n"))
        self._left = left

    @property
    def table(self) -> str:
        """The text of a table (TOML) to be filled in, for ``--names``."""
        return self._left.table()


def _offered(ours: str, offers: Mapping[Group, Sequence[str]]) -> list[str]:
    """Return the patterns that a name of ours, or for a packed one those of its parts, are offered to."""
    mine = {ours, *(WHOLE | PARTS if ours in WHOLE else ())}
    turned = {TURNED + name for name in mine}
    return [
        f"{'' if mine & set(names) else TURNED}{told(group.name)}"
        for group, names in offers.items()
        if (mine | turned) & set(names)
    ]


def _like(names: list[str]) -> str:
    return f" like {', '.join(names[:4])}" if names else ""


def _fits(line: Name, store: Store) -> bool:
    """Whether a line of a table is of any stored tensor."""
    expression = pattern(line.theirs)
    return any(expression.fullmatch(name) for name in store.tensors)


def _said_twice(names: Iterable[Name]) -> set[Name]:
    """Return the lines of which two would be one weight, or one tensor two."""
    lines = list(names)
    ours, theirs = Counter(line.ours for line in lines), Counter(line.theirs for line in lines)
    return {line for line in lines if ours[line.ours] > 1 or theirs[line.theirs] > 1}


def check_spelled(found: Spelled, naming: Naming, store: Store, given: Path | None = None) -> None:
    """See that the lists of spellings leave nothing open.

    Raises:
        UnknownNamesError: with what is unknown or said twice.
    """
    if found.unknown or found.clashes:
        raise UnknownNamesError(Unnamed(store, naming, given), "; ".join(found.clashes))
