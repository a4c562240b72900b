"""The weights of a GPT whose every name is its maker's own, as a state dict and as an archive of LibTorch."""

from __future__ import annotations

import zipfile
from pathlib import Path

import torch
from torch import Tensor

VOCAB, WIDTH, HEADS, CONTEXT = 100, 64, 4, 40
LINES = {
    "words.table": "wte.weight",
    "stage{layer}.pre.scale": "h.{layer}.ln_1.weight",
    "stage{layer}.pre.shift": "h.{layer}.ln_1.bias",
    "stage{layer}.unit{head}.to_q.weight": "h.{layer}.attn.q.{head}.weight",
    "stage{layer}.unit{head}.to_k.weight": "h.{layer}.attn.k.{head}.weight",
    "stage{layer}.unit{head}.to_v.weight": "h.{layer}.attn.v.{head}.weight",
    "stage{layer}.mix.weight": "h.{layer}.attn.c_proj.weight",
    "stage{layer}.mix.bias": "h.{layer}.attn.c_proj.bias",
    "stage{layer}.post.scale": "h.{layer}.ln_2.weight",
    "stage{layer}.post.shift": "h.{layer}.ln_2.bias",
    "stage{layer}.grow.weight": "h.{layer}.mlp.c_fc.weight",
    "stage{layer}.grow.bias": "h.{layer}.mlp.c_fc.bias",
    "stage{layer}.shrink.weight": "h.{layer}.mlp.c_proj.weight",
    "stage{layer}.shrink.bias": "h.{layer}.mlp.c_proj.bias",
    "last.scale": "ln_f.weight",
    "last.shift": "ln_f.bias",
    "answer.weight": "lm_head.weight",
}
"""Their names and ours."""
SEEN = "stage{layer}.seen"
"""A causal mask, which no list knows as one."""


def _shape(ours: str) -> tuple[int, ...]:
    part, kind = ours.rsplit(".", 1)
    if kind == "bias":
        return (4 * WIDTH,) if part.endswith("c_fc") else (WIDTH,)
    if part in ("wte", "lm_head"):
        return VOCAB, WIDTH
    sizes = {"c_fc": (4 * WIDTH, WIDTH), "mlp.c_proj": (WIDTH, 4 * WIDTH), "attn.c_proj": (WIDTH, WIDTH)}
    found = (size for end, size in sizes.items() if part.endswith(end))
    return next(found, (WIDTH // HEADS, WIDTH) if "{head}" in part else (WIDTH,))


def own_state() -> dict[str, Tensor]:
    """Two layers of random weights under LINES' names, and masks."""
    generator = torch.Generator().manual_seed(5)
    state = {}
    for theirs, ours in LINES.items():
        for layer in range(2 if "{layer}" in theirs else 1):
            for head in range(HEADS if "{head}" in theirs else 1):
                name = theirs.format(layer=layer, head=head)
                state[name] = torch.randn(_shape(ours), generator=generator) * 0.2
    masks = {SEEN.format(layer=layer): torch.ones(CONTEXT, CONTEXT).tril() for layer in range(2)}
    return {**state, **masks}


def write_state_dict(path: Path) -> Path:
    """Write the weights as torch.save does."""
    torch.save(own_state(), path)
    return path


def write_archive(path: Path) -> Path:
    """Write them with the folder of code by which an archive of LibTorch is known."""
    torch.save(own_state(), path)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(f"{path.stem}/code/__torch__.py", "")
    return path


def filled(table: str) -> str:
    """Fill in a table that was written for these names, as their maker would."""
    for theirs, ours in LINES.items():
        table = table.replace(f'"{theirs}" = "?"', f'"{theirs}" = "{ours}"')
    lines = [line for line in table.splitlines() if not line.startswith(f'"{SEEN}"')]
    return "\n".join(lines).replace("ignore = []", f'ignore = ["{SEEN}"]')
