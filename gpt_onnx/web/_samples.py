"""Texts and the ids that this bundle's tokenizer makes of them: the page holds its own library to them.

Wrong ids give wrong text without a word, so the page takes no text if one of these differs.
"""

from __future__ import annotations

from gpt_onnx.bundle import Bundle
from gpt_onnx.errors import InputError
from gpt_onnx.runtime.generation_config import read_generation_defaults
from gpt_onnx.runtime.tokenizer import load_tokenizer

TOKENIZER = "tokenizer.json"
TEXTS = (
    "My fellow citizens, it's 1,234.5 o'clock; we'll see.",
    "  two  spaces, a tab\there\nand\n\nlines \n ",
    "emoji 😀👩‍👩‍👧🇩🇪, 日本語 中文 한국어, Ünïcödé, naïve ﬁ",
    "<|endoftext|> <s> [CLS] </s> are letters here",
    "кириллица ελληνικά العربية हिन्दी",
    "CamelCase snake_case x=y+1; // ![](url)",
)


def tokenizer_samples(bundle: Bundle) -> list[tuple[str, list[int]]]:
    """Return texts with their ids; those that the tokenizer refuses are left out. Empty without a tokenizer.

    Raises:
        BundleError: if the tokenizer is not one that the runtime takes.
    """
    if TOKENIZER not in bundle.manifest.files:
        return []
    vocab_size = bundle.manifest.model.vocab_size
    defaults = read_generation_defaults(bundle.path / "generation_config.json", vocab_size=vocab_size)
    control_ids = [*defaults.eos_ids, *([] if defaults.bos_id is None else [defaults.bos_id])]
    tokenizer = load_tokenizer(bundle.file(TOKENIZER), control_ids)
    samples = []
    for text in TEXTS:
        try:
            samples.append((text, tokenizer.encode(text)))
        except InputError:  # it can only be read as a control token
            continue
    return samples
