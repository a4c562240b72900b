"""What every command and the README of a bundle say about the original program, in the same words.

A bundle is checked against the model that gpt-onnx computes. Whether that is the program that was trained is
another question: a module of the user's own and a model that gpt-onnx trained are that program; our reading
of anybody else's checkpoint is not, until numbers that the program wrote itself were compared.

    >>> original_words(checked=True, compared=True)
    'compared with the original program'
    >>> original_words(checked=True, compared=True, precision="int4")
    'compared with the original program before its weights became int4'

Standard library only, so that a device can say it.
"""

from __future__ import annotations

FLOAT32 = "fp32"
COMPARED = "compared with the original program"
REMEDY = "export it again with --reference FILE, input_ids and logits that the program itself wrote"


def original_words(*, checked: bool, compared: bool, precision: str = FLOAT32) -> str:
    """Return how a bundle stands to the original program, as a clause that follows "it was".

    Args:
        checked: Whether it was checked at all.
        compared: Whether the original program itself, or numbers that it wrote, was among what it met.
        precision: Of its weights. Where they are not the original's it was our program with the original's
            weights that met it, and the bundle met our program with its own.
    """
    if compared:
        return COMPARED if precision == FLOAT32 else f"{COMPARED} before its weights became {precision}"
    remedy = REMEDY if checked else "it was made with --check none"
    return f"not {COMPARED}: {remedy}"
