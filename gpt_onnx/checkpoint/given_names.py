"""The table of names that the user gives, completed by the usual words for what it leaves out.

    reading = reading_under_names(Path("names.toml"), MemoryStore(state, "MyGPT"))

Causal masks that the usual words know are looked at and passed over.
"""

from __future__ import annotations

from pathlib import Path

from gpt_onnx.checkpoint import stored_tables
from gpt_onnx.checkpoint.assembly import Reading, reading_of
from gpt_onnx.checkpoint.names import Naming, pattern
from gpt_onnx.checkpoint.names_file import read_names
from gpt_onnx.checkpoint.naming import unnamed
from gpt_onnx.checkpoint.renamed_store import bare_table, without_prefixes
from gpt_onnx.checkpoint.spellings import is_mask, spelled
from gpt_onnx.checkpoint.store import Store
from gpt_onnx.checkpoint.unnamed import check_spelled
from gpt_onnx.errors import InputError


def check_masks(store: Store, naming: Naming) -> None:
    """See that what is called a mask is causal, unless the user has looked at it: the table ignores it.

    Raises:
        CheckpointError: naming one that is not.
    """
    names = (name for name in store.tensors if is_mask(name) and not naming.ignores(name))
    stored_tables.check_masks(store.path, store.tensors, names, store.read)


def check_lines(naming: Naming, store: Store, file: Path) -> None:
    """See that every line of the user's table fits a tensor: by a slip, the usual words would count instead.

    Raises:
        InputError: naming a line that fits none.
    """
    for line in naming.names:
        if not any(map(pattern(line.theirs).fullmatch, store.tensors)):
            raise InputError(
                f"{file} names {line.theirs[:200]!r}, which no tensor of {store.path} is; correct the line, "
                "or take it out."
            )


def reading_under_names(file: Path, store: Store) -> Reading:
    """Find out what tensors say under the user's table, with what the usual words add to it.

    Raises:
        InputError: if the table cannot be understood, or a line of it fits no tensor.
        CheckpointError: if two names become one, tensors are left over, or a mask is not causal.
        UnknownNamesError: if names are in neither.
    """
    store = without_prefixes(store)
    naming = bare_table(read_names(file), store)
    check_masks(store, naming)
    added = spelled(unnamed(naming, store))
    both = Naming((*naming.names, *added.naming.names), (*naming.ignored, *added.naming.ignored))
    check_spelled(added, both, store, file)
    reading = reading_of(store, both)
    check_lines(naming, store, file)
    return reading
