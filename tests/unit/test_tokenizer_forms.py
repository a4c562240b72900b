"""The forms of tokenizer.json that GPT-2, Llama 2, Llama 3, SmolLM and Qwen2 have, against transformers.

Each is small and trained here, on the documentation of this project.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from tokenizers import Tokenizer as RustTokenizer

from gpt_onnx.checkpoint.tokenizer_files import read_tokenizer
from gpt_onnx.runtime.tokenizer import Tokenizer, load_tokenizer

DOCS = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))
LINES = [line for path in DOCS for line in path.read_text(encoding="utf-8").splitlines()][:600]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")


def byte_level_of(rust: RustTokenizer, specials: list[str]) -> RustTokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    rust.train_from_iterator(LINES, trainer)
    rust.decoder = decoders.ByteLevel()
    return rust


def split_by(pattern: str) -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def gpt2() -> RustTokenizer:
    rust = RustTokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.post_processor = processors.ByteLevel(trim_offsets=False)
    return byte_level_of(rust, ["<|endoftext|>"])


def smollm() -> RustTokenizer:
    rust = RustTokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    return byte_level_of(rust, ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"])


def qwen2() -> RustTokenizer:
    rust = RustTokenizer(models.BPE())
    rust.normalizer = normalizers.NFC()
    rust.pre_tokenizer = split_by(QWEN2)
    rust.post_processor = processors.ByteLevel(trim_offsets=False)
    trained = byte_level_of(rust, [])
    trained.add_special_tokens([AddedToken(text, special=True) for text in ("<|endoftext|>", "<|im_start|>")])
    return trained


def llama3() -> RustTokenizer:
    rust = RustTokenizer(models.BPE(ignore_merges=True))
    rust.pre_tokenizer = split_by(LLAMA3)
    trained = byte_level_of(rust, [])
    trained.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>"])
    begin = trained.token_to_id("<|begin_of_text|>")
    template = processors.TemplateProcessing(
        single="<|begin_of_text|> $A",
        pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
        special_tokens=[("<|begin_of_text|>", begin)],
    )
    trained.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return trained


def _with_bytes(trained: RustTokenizer) -> RustTokenizer:
    """A BPE as sentencepiece's is written: unknown, begin, end, 256 bytes, then pieces; unknown as bytes."""
    model = json.loads(trained.to_str())["model"]
    first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces = first + [piece for piece in model["vocab"] if piece not in first]
    merges = [tuple(merge) for merge in model["merges"]]
    bpe = models.BPE(
        {piece: number for number, piece in enumerate(pieces)},
        merges,
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    return RustTokenizer(bpe)


def _sentencepiece(normalizer: Any, pre_tokenizer: Any) -> RustTokenizer:
    plain = RustTokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first")
    plain.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=500, show_progress=False))
    rust = _with_bytes(plain)
    rust.add_special_tokens([AddedToken(text, normalized=False) for text in ("<unk>", "<s>", "</s>")])
    if normalizer is not None:
        rust.normalizer = normalizer
    if pre_tokenizer is not None:
        rust.pre_tokenizer = pre_tokenizer
    rust.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    rust.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    return rust


def llama2() -> RustTokenizer:
    chain = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return _sentencepiece(chain, None)


def llama2_metaspace() -> RustTokenizer:
    return _sentencepiece(
        None, pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    )


FORMS: Mapping[str, Callable[[], RustTokenizer]] = {
    "gpt2": gpt2,
    "smollm": smollm,
    "qwen2": qwen2,
    "llama3": llama3,
    "llama2": llama2,
    "llama2 metaspace": llama2_metaspace,
}
STRINGS = [
    "My fellow citizens, the state of the Union is strong.",
    " leading space",
    "two  spaces   three    four",
    "trailing space ",
    "   ",
    "\n",
    "\n\n\n",
    "a\r\nb\r\n\r\nc",
    "\ttabs\t\tand\tmore",
    "It's, we've, they'll, I'M, you'Re, we'D, 'tis 's",
    "1234567890 3.14159 1,000,000 ２３ ٣٤ Ⅷ",
    "naïve café résumé",
    "cafe\u0301 n\u0303 \u1100\u1161\u11a8",
    "中文字符 日本語 한국어",
    "العربية עברית हिन्दी ไทย",
    "🙂👩‍👩‍👧‍👦🏳️‍🌈",
    "mixed🙂text1and2symbols#!?...",
    "if (x != y) { return z[0] + 1; }  // code",
    "▁ a literal underscore of sentencepiece ▁▁",
    "<0x41> is no byte",
    "\u00a0non-breaking\u2003em\u200bzero",
    "Ġ Ċ ▁",
    "\x00\x01\x7f",
    "ﬁ ligature Å",
    "x" * 100,
]


def random_strings(count: int) -> list[str]:
    generator = random.Random(7)
    alphabet = "ab Zé'sT 12\n\t.,!-#中й🙂\u0301\r▁"
    return ["".join(generator.choices(alphabet, k=generator.randrange(1, 30))) for _ in range(count)]


def loaded(folder: Path, made: Path) -> Tokenizer:
    """The tokenizer of a folder, as a bundle would hold it in the file ``made``."""
    files = read_tokenizer(folder, 64)
    assert files is not None
    made.write_text(files.definition, encoding="utf-8")
    return load_tokenizer(made)


@pytest.fixture(scope="module", params=FORMS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Any]:
    """Our tokenizer and that of transformers, of one file."""
    import transformers

    fast: Any = transformers.PreTrainedTokenizerFast
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    FORMS[request.param]().save(str(path))
    return load_tokenizer(path), fast(tokenizer_file=str(path))


def test_ids_and_texts_are_those_of_transformers(both: tuple[Tokenizer, Any]) -> None:
    ours, theirs = both
    for text in [*STRINGS, *LINES[:200], *random_strings(300)]:
        ids = theirs.encode(text)
        assert ours.encode(text) == ids, repr(text)
        expected = theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(ids) == expected, repr(text)


def test_a_control_token_in_a_text_stays_text(both: tuple[Tokenizer, Any]) -> None:
    ours, _ = both
    for control in ours.control_ids:
        written = ours.token(control)
        assert control not in ours.encode(f"a {written} b")[len(ours.prefix) :]


PAIRS: Mapping[str, Callable[[], RustTokenizer]] = {"GPT2Tokenizer": gpt2, "Qwen2Tokenizer": qwen2}


@pytest.mark.parametrize("name", PAIRS)
def test_two_files_are_read_as_their_class_reads_them(name: str, tmp_path: Path) -> None:
    import transformers

    model = json.loads(PAIRS[name]().to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    (tmp_path / "merges.txt").write_text("\n".join(" ".join(merge) for merge in model["merges"]))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    theirs = getattr(transformers, name).from_pretrained(tmp_path)
    ours = loaded(tmp_path, tmp_path / "made.json")
    for text in [*STRINGS, *random_strings(100)]:
        assert ours.encode(text) == theirs.encode(text), repr(text)


@pytest.mark.parametrize("first", [True, False, None])
def test_the_first_token_is_the_one_of_transformers(first: bool | None, tmp_path: Path) -> None:
    import transformers

    llama2().save(str(tmp_path / "tokenizer.json"))
    config: dict[str, Any] = {"bos_token": "<s>", "tokenizer_class": "PreTrainedTokenizerFast"}
    config |= {} if first is None else {"add_bos_token": first}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ids = theirs.encode("the union")
    assert loaded(tmp_path, tmp_path / "made.json").encode("the union") == ids
