"""Rows of a vocabulary that are padding: no token has their ids, and no client may choose one.

Programs round GPT-2's 50,257 tokens up to 50,304, a multiple of 64. The rows behind the last token are left
out of the token embedding and of the head, so that the exported model does not know them.
"""

from __future__ import annotations

from dataclasses import replace

from gpt_onnx.checkpoint.checkpoint import Checkpoint
from gpt_onnx.checkpoint.recipe import Recipe, first_rows

PADDED: dict[int, int] = {50304: 50257}
"""Rows that are stored, and tokens that they are for."""
BY_TOKEN = ("wte.weight", "lm_head.weight", "lm_head.bias", "lm_head_bias")


def _cut(recipe: Recipe, rows: int) -> Recipe:
    make, keep = recipe.make, first_rows(rows)
    return Recipe(recipe.pieces, lambda parts: keep([make(parts)]))


def without_padding(checkpoint: Checkpoint, rows: int | None = None) -> Checkpoint:
    """Return a checkpoint of the rows that tokens have; the same one where none is padding.

    Args:
        checkpoint: With every row that is stored.
        rows: How many are tokens'; None for what PADDED says, unless the tokenizer has more ids.
    """
    stored = checkpoint.config.vocab_size
    if rows is None:
        ids = 0 if checkpoint.tokenizer is None else checkpoint.tokenizer.vocab_size
        rows = stored if ids > PADDED.get(stored, stored) else PADDED.get(stored, stored)
    if rows == stored:
        return checkpoint
    cut = {name: _cut(checkpoint.recipes[name], rows) for name in BY_TOKEN if name in checkpoint.recipes}
    note = (
        f"The vocabulary's rows from {rows} on ({stored - rows}) are padding and were left out, so that no "
        "client can choose them."
    )
    return replace(
        checkpoint,
        config=checkpoint.config.replace(vocab_size=rows),
        recipes={**checkpoint.recipes, **cut},
        padded_vocab_size=stored,
        notes=(*checkpoint.notes, note),
    )
