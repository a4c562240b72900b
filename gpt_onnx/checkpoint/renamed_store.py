"""A store under other names: what torch.compile and DataParallel put before a module's names is taken off.

>>> bare_names(["_orig_mod.module.wte.weight", "_orig_mod.module.ln_f.weight"])
{'wte.weight': '_orig_mod.module.wte.weight', 'ln_f.weight': '_orig_mod.module.ln_f.weight'}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.checkpoint.names import Naming
from gpt_onnx.checkpoint.naming import matches_of
from gpt_onnx.checkpoint.store import Store, Stored
from gpt_onnx.errors import CheckpointError

COMPILED = "_orig_mod."
WRAPPED = "module."


def bare_name(name: str) -> str:
    """Return a name without what torch.compile put anywhere into it; no module may be called so itself."""
    return ".".join(part for part in name.split(".") if part != COMPILED.removesuffix("."))


def bare_names(names: Iterable[str]) -> dict[str, str]:
    """Return each name without these prefixes, and the name itself; what all names begin with is a prefix.

    Raises:
        CheckpointError: if two names become one.
    """
    bare = {name: bare_name(name) for name in names}
    while bare and all(name.startswith(WRAPPED) for name in bare.values()):
        bare = {name: short.removeprefix(WRAPPED) for name, short in bare.items()}
    found: dict[str, str] = {}
    for name, short in bare.items():
        if found.setdefault(short, name) != name:
            raise CheckpointError(
                f"{name} and {found[short]} are both {short} without the prefixes of PyTorch."
            )
    return found


class RenamedStore:
    """See Store.

    Args:
        store: The tensors under their own names.
        names: New name to own name; what is not in it is left out.
    """

    def __init__(self, store: Store, names: Mapping[str, str]) -> None:
        self.path, self.files = store.path, store.files
        self.tensors: Mapping[str, Stored] = {name: store.tensors[own] for name, own in names.items()}
        self._store, self._names = store, names

    def read(self, name: str) -> NDArray[np.floating[Any]]:
        """See Store."""
        return self._store.read(self._names[name])


def without_prefixes(store: Store) -> Store:
    """Return a store without these prefixes; the store itself where there are none.

    Raises:
        CheckpointError: if two names become one.
    """
    names = bare_names(store.tensors)
    return store if all(name == own for name, own in names.items()) else RenamedStore(store, names)


def _without(pattern: str) -> str:
    return bare_name(pattern).removeprefix(WRAPPED)


def bare_table(naming: Naming, store: Store) -> Naming:
    """Return a table for a store without prefixes: as it is where it fits so, else without them too."""
    if any(matches_of(naming, store.tensors)):
        return naming
    names = (replace(name, theirs=_without(name.theirs)) for name in naming.names)
    return Naming(tuple(names), tuple(_without(text) for text in naming.ignored))
