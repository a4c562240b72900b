"""Real text for the gate: what a tokenizer makes of a few paragraphs that travel with the toolkit."""

from __future__ import annotations

from pathlib import Path

from gpt_onnx.bundle import Bundle
from gpt_onnx.errors import InputError
from gpt_onnx.runtime.tokenizer import load_tokenizer

TOKENIZER = "tokenizer.json"
PARAGRAPHS = (
    "When in the Course of human events, it becomes necessary for one people to dissolve the political bands "
    "which have connected them with another, and to assume among the powers of the earth, the separate and "
    "equal station to which the Laws of Nature and of Nature's God entitle them, a decent respect to the "
    "opinions of mankind requires that they should declare the causes which impel them to the separation.",
    "We hold these truths to be self-evident, that all men are created equal, that they are endowed by their "
    "Creator with certain unalienable Rights, that among these are Life, Liberty and the pursuit "
    "of Happiness. That to secure these rights, Governments are instituted among Men, deriving their just "
    "powers from the consent of the governed.",
    "In 1787, 39 delegates signed; by June 1788 the ninth state (57 to 47) had ratified: $1,000 would not "
    'have bought the paper. "Well, Doctor, what have we got?" – "A republic," he said, "if you can keep it."',
    "L’été, à Zürich: naïve café, Ωμέγα, привет, 東京, 🙂\n\n\tdef f(x):\n\t\treturn x ** 2  # code\n",
)
"""Prose, figures, and characters beyond English; public domain or our own."""


def texts_at(path: Path, vocab_size: int | None = None) -> list[list[int]]:
    """Return the paragraphs as ids of a ``tokenizer.json``; a text that it refuses is left out.

    Ids that the model lacks are left out too: a tokenizer may have more tokens than the model.
    """
    tokenizer = load_tokenizer(path)
    texts = []
    for paragraph in PARAGRAPHS:
        try:
            ids = tokenizer.encode(paragraph)
        except InputError:
            continue
        texts.append([token for token in ids if vocab_size is None or token < vocab_size])
    return [text for text in texts if text]


def texts_of(bundle: Bundle) -> list[list[int]]:
    """Return the paragraphs as ids of a bundle's tokenizer; nothing where it has none."""
    manifest = bundle.manifest
    if TOKENIZER not in manifest.files:
        return []
    return texts_at(bundle.file(TOKENIZER), manifest.model.vocab_size)
