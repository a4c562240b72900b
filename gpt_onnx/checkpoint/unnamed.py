"""What the lists of spellings leave open in a file, told so that a table of names can be written from it."""

from __future__ import annotations

from collections.abc import Iterator

from gpt_onnx.checkpoint.leftovers import listed
from gpt_onnx.checkpoint.naming import matches_of
from gpt_onnx.checkpoint.spellings import Spelled
from gpt_onnx.checkpoint.store import Store

EMBEDDING = "wte.weight"
QUERIES, KEYS, VALUES = (f"h.{{layer}}.attn.{part}" for part in "qkv")
PACKED = "h.{layer}.attn.c_attn"
MATRICES = {  # and their usual sizes, in widths of the residual stream
    "h.{layer}.attn.c_proj.weight": (1, 1),
    "h.{layer}.mlp.c_fc.weight": (4, 1),
    "h.{layer}.mlp.c_proj.weight": (1, 4),
}
REMEDY = "name the tensors in a table and give it with --names FILE"
NORMS = ("h.{layer}.ln_1.weight", "h.{layer}.ln_2.weight", "ln_f.weight")


def _lacking(found: Spelled, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield our patterns that every GPT has and nothing is named as, with their usual shapes."""
    named = {name.ours for name in found.naming.names}
    for name, (rows, columns) in MATRICES.items():
        if name not in named:
            yield name, (rows * width, columns * width)
    for name in NORMS:
        if name not in named:
            yield name, (width,)
    if any(name.startswith((PACKED, QUERIES)) for name in named):
        return
    yield f"{PACKED}.weight", (3 * width, width)
    for part in (QUERIES, KEYS, VALUES):
        yield f"{part}.weight", (width, width)
        yield f"{part}.{{head}}.weight", (0, width)


def left_open(found: Spelled, store: Store) -> str:
    """Return what is unknown or said twice, with what it may be by its shape; "" where nothing is."""
    unknown = {name: store.tensors[name].shape for name in found.unknown}
    embedding = matches_of(found.naming, store.tensors).get(EMBEDDING) if not found.clashes else None
    shape = store.tensors[embedding.theirs].shape if embedding else ()
    lacking = dict(_lacking(found, shape[-1])) if len(shape) == 2 else {}
    names = [f"it has tensors that are not known by name: {listed(unknown, lacking)}"] if unknown else []
    return "; ".join([*found.clashes, *names])
