"""What every command and the README of a bundle say about the original program, in the same words.

A bundle is checked against the model that gpt-onnx computes. Whether that is the program that was trained is
another question: a module of the user's own and a model that gpt-onnx trained are that program; our reading
of anybody else's checkpoint is not, until numbers that the program wrote itself were compared.

    >>> original_words(checked=True, compared=True)
    'compared with the original program'

Standard library only, so that a device can say it.
"""

from __future__ import annotations

COMPARED = "compared with the original program"
REMEDY = "export it again with --reference FILE, input_ids and logits that the program itself wrote"


def original_words(*, checked: bool, compared: bool) -> str:
    """Return how a bundle stands to the original program, as a clause that follows "it was".

    Args:
        checked: Whether it was checked at all.
        compared: Whether the original program itself, or numbers that it wrote, was among what it met.
    """
    if compared:
        return COMPARED
    remedy = REMEDY if checked else "it was made with --check none"
    return f"not {COMPARED}: {remedy}"
