"""The table of names that the user gives, completed by the usual words for what it leaves out.

    store, naming = under_names(Path("names.toml"), MemoryStore(state, "MyGPT"))

Causal masks that the usual words know are looked at and passed over.
"""

from __future__ import annotations

from pathlib import Path

from gpt_onnx.checkpoint import stored_tables
from gpt_onnx.checkpoint.names import Naming, pattern
from gpt_onnx.checkpoint.names_file import read_names
from gpt_onnx.checkpoint.naming import unnamed
from gpt_onnx.checkpoint.renamed_store import bare_table, without_prefixes
from gpt_onnx.checkpoint.spellings import is_mask, spelled
from gpt_onnx.checkpoint.store import Store
from gpt_onnx.checkpoint.unnamed import check_spelled


def check_masks(store: Store, naming: Naming) -> None:
    """See that what is called a mask is causal, unless the user has looked at it: the table ignores it.

    Raises:
        CheckpointError: naming one that is not.
    """
    names = (name for name in store.tensors if is_mask(name) and not naming.ignores(name))
    stored_tables.check_masks(store.path, store.tensors, names, store.read)


def idle_lines(naming: Naming, store: Store) -> tuple[str, ...]:
    """Tell of lines of the user's table that fit no tensor: by a slip, the usual words may count instead."""
    idle = [
        line.theirs for line in naming.names if not any(map(pattern(line.theirs).fullmatch, store.tensors))
    ]
    if not idle:
        return ()
    more = f" and {len(idle) - 1} more" if len(idle) > 1 else ""
    return (f"No tensor has the name {idle[0][:200]!r}{more} of the table of names.",)


def under_names(file: Path, store: Store) -> tuple[Store, Naming]:
    """Return a store without PyTorch's prefixes, and the user's table for it with what the usual words add.

    Raises:
        InputError: if the table cannot be understood.
        CheckpointError: if two names become one, or a mask is not causal.
        UnknownNamesError: if names are in neither.
    """
    store = without_prefixes(store)
    naming = bare_table(read_names(file), store)
    check_masks(store, naming)
    added = spelled(unnamed(naming, store))
    both = Naming((*naming.names, *added.naming.names), (*naming.ignored, *added.naming.ignored))
    check_spelled(added, both, store, file)
    return store, both
