"""What a GGUF file says of the model, its tokenizer and its generation, and what is refused by name."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from gpt_onnx.checkpoint import read_checkpoint
from gpt_onnx.checkpoint.gguf_tokenizer import tokenizer_of
from gpt_onnx.checkpoint.readers.gguf import put_back
from gpt_onnx.errors import CheckpointError, ConfigError, GptOnnxError, InputError
from gpt_onnx.runtime.tokenizer import load_tokenizer

VOCAB, WIDTH, FF = 32, 16, 24
SHAPES = {
    "token_embd.weight": (VOCAB, WIDTH),
    "output_norm.weight": (WIDTH,),
    "blk.0.attn_norm.weight": (WIDTH,),
    "blk.0.attn_q.weight": (WIDTH, WIDTH),
    "blk.0.attn_k.weight": (8, WIDTH),
    "blk.0.attn_v.weight": (8, WIDTH),
    "blk.0.attn_output.weight": (WIDTH, WIDTH),
    "blk.0.ffn_norm.weight": (WIDTH,),
    "blk.0.ffn_gate.weight": (FF, WIDTH),
    "blk.0.ffn_up.weight": (FF, WIDTH),
    "blk.0.ffn_down.weight": (WIDTH, FF),
}
"""Two heads of eight, one of them for keys and values."""
KEYS: Mapping[str, Any] = {
    "llama.context_length": 20,
    "llama.embedding_length": WIDTH,
    "llama.block_count": 1,
    "llama.feed_forward_length": FF,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 1,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}
Writer = Callable[..., Path]


def _add(writer: Any, name: str, value: Any) -> None:
    kinds = {bool: "bool", int: "uint32", float: "float32", str: "string", list: "array"}
    getattr(writer, f"add_{kinds[type(value)]}")(name, value)


@pytest.fixture
def written(tmp_path: Path) -> Writer:
    """Writes a llama file: keys and tensors that differ, None to leave one away."""

    def write(
        keys: Mapping[str, Any] | None = None,
        tensors: Mapping[str, np.ndarray | None] | None = None,
        arch: str = "llama",
    ) -> Path:
        path = tmp_path / "model.gguf"
        writer = gguf.GGUFWriter(path, arch)
        for name, value in {**KEYS, **(keys or {})}.items():
            if value is not None:
                _add(writer, name, value)
        rng = np.random.default_rng(0)
        arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
        for name, array in {**arrays, **(tensors or {})}.items():
            if array is not None:
                writer.add_tensor(name, array)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def test_rows_of_a_head_are_put_back() -> None:
    rows = np.arange(12)[:, None] * np.ones((1, 2))
    assert put_back(rows, 6)[:, 0].tolist() == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]


def test_a_head_that_is_stored_twice_is_tied(written: Writer) -> None:
    table = np.ones((VOCAB, WIDTH), np.float32)
    twice = read_checkpoint(written(tensors={"token_embd.weight": table, "output.weight": table}))
    assert twice.config.tie_embeddings
    assert "lm_head.weight" not in twice.recipes
    other = read_checkpoint(written(tensors={"output.weight": 2 * table}))
    assert not other.config.tie_embeddings
    assert (other.numpy("lm_head.weight") == 2).all()


def test_without_a_key_the_usual_value_is_taken(written: Writer) -> None:
    config = read_checkpoint(written({"llama.attention.head_count_kv": None}, _keys_of_two_heads())).config
    assert (config.n_kv_head, config.rope_theta, config.head_size) == (2, 10000.0, 8)
    assert {config.qkv_bias, config.proj_bias, config.mlp_bias, config.norm_bias} == {False}


def _keys_of_two_heads() -> dict[str, np.ndarray]:
    return {f"blk.0.attn_{part}.weight": np.ones((WIDTH, WIDTH), np.float32) for part in "kv"}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no layers": ({"llama.block_count": None}, "lacks llama.block_count; an integer"),
    "a word for a number": ({"llama.block_count": "two"}, "llama.block_count = 'two'; an integer"),
    "layers beyond the file": ({"llama.block_count": 2}, r"lacks h\.1\.ln_1\.weight"),
    "layers beyond all": ({"llama.block_count": 2**31 - 1}, "n_layer is 2147483647"),
    "no epsilon": ({"llama.attention.layer_norm_rms_epsilon": None}, "epsilon; a number"),
    "an infinite epsilon": (
        {"llama.attention.layer_norm_rms_epsilon": float("inf")},
        "a number was expected",
    ),
    "heads": ({"llama.attention.head_count": 4}, r"has the shape \[8, 16\]; by its metadata"),
    "heads that do not divide": ({"llama.attention.head_count": 3}, "not a multiple|must be even"),
    "the vocabulary": ({"llama.vocab_size": 31}, r"vocab_size = 31; 32, the rows of token_embd\.weight"),
    "values": ({"llama.attention.value_length": 4}, "value_length = 4; 8, the size of a key"),
    "part of a head": ({"llama.rope.dimension_count": 4}, "dimension_count = 4; 8, the size of a head"),
    "yarn": ({"llama.rope.scaling.type": "yarn"}, "scaling.type = 'yarn'; linear scaling"),
    "a window": ({"llama.attention.sliding_window": 8}, "sliding_window = 8; attention to all 20 tokens"),
    "experts": ({"llama.expert_count": 8}, "llama.expert_count = 8, which changes what is computed"),
    "a limit on logits": ({"llama.final_logit_softcapping": 30.0}, "softcapping = 30.0, which changes"),
    "a part": ({"split.count": 3}, "is one of 3 files of a model; merge them"),
    "an id beyond": ({"tokenizer.ggml.eos_token_id": 32}, "eos_token_id = 32; an id below 32"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_computed_is_refused_by_name(name: str, written: Writer) -> None:
    keys, said = REFUSED[name]
    with pytest.raises((CheckpointError, ConfigError), match=said):
        read_checkpoint(written(keys))


@pytest.mark.parametrize("arch", ["gemma", "phi3", "mamba"])
def test_other_architectures_are_refused_by_name(arch: str, written: Writer) -> None:
    with pytest.raises(
        CheckpointError, match=rf"architecture '{arch}'; known are gpt2, llama, qwen2: .* with --config"
    ):
        read_checkpoint(written(arch=arch))


def test_tensors_that_are_left_over_are_refused_by_name(written: Writer) -> None:
    with pytest.raises(CheckpointError, match=r"not named: blk\.0\.attn_q_norm\.weight \[8\]"):
        read_checkpoint(written(tensors={"blk.0.attn_q_norm.weight": np.ones(8, np.float32)}))
    with pytest.raises(CheckpointError, match=r"lacks h\.0\.attn\.k\.weight \[8, 16\]"):
        read_checkpoint(written(tensors={"blk.0.attn_k.weight": None}))
    with pytest.raises(CheckpointError, match=r"no token_embd\.weight with a row for each token"):
        read_checkpoint(written(tensors={"token_embd.weight": None}))


def test_other_factors_on_rotary_frequencies_are_refused(written: Writer) -> None:
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight, factors .* not those of Llama 3"):
        read_checkpoint(written(tensors={"rope_freqs.weight": np.array([1, 2, 3, 4], np.float32)}))


@pytest.mark.parametrize("wrong", [np.nan, -1.0, 0.0, 1e30])
def test_absurd_factors_are_refused(wrong: float, written: Writer) -> None:
    with pytest.raises(GptOnnxError):
        read_checkpoint(written(tensors={"rope_freqs.weight": np.full(4, wrong, np.float32)}))


def test_options_that_it_has_no_use_for_are_refused(written: Writer) -> None:
    with pytest.raises(InputError, match=r"leave --config c\.toml away"):
        read_checkpoint(written(), config="c.toml")


def test_what_it_says_about_generation_is_kept(written: Writer) -> None:
    keys = {
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.bos_token_id": 1,
        "general.sampling.temp": 0.7,
        "general.sampling.top_k": 20,
    }
    generation = read_checkpoint(written(keys)).generation
    assert generation == {"bos_token_id": 1, "eos_token_id": 2, "temperature": 0.7, "top_k": 20}


TEXT = "It's 1,234 tests; we'LL see  them\n\n in 2026 — naïve café e\u0301, isn't it? Tests see tests."
GPT2_CUT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3_CUT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_CUT = LLAMA3_CUT.replace("{1,3}", "")


def _cut(pattern: str, *first: Any) -> Any:
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([*first, split, pre_tokenizers.ByteLevel(False, use_regex=False)])


CUTS = {
    "gpt-2": lambda: _cut(GPT2_CUT),
    "smollm": lambda: _cut(GPT2_CUT, pre_tokenizers.Digits(individual_digits=True)),
    "llama-bpe": lambda: _cut(LLAMA3_CUT),
    "qwen2": lambda: _cut(QWEN2_CUT),
}


def _original(pre: str) -> Tokenizer:
    """A tokenizer of this kind, trained on a few words, as the model's maker has it."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre == "llama-bpe"))
    tokenizer.pre_tokenizer = CUTS[pre]()
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    tokenizer.add_special_tokens([AddedToken("<|start|>", special=True), AddedToken("<|end|>", special=True)])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    if pre == "llama-bpe":
        start = tokenizer.token_to_id("<|start|>")
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|start|> $A", special_tokens=[("<|start|>", start)]
        )
    return tokenizer


def _metadata(tokenizer: Tokenizer, pre: str | None) -> dict[str, Any]:
    """What the converter makes of it."""
    vocab = tokenizer.get_vocab()
    tokens = sorted(vocab, key=vocab.__getitem__)
    kinds = {"<|start|>": 3, "<|end|>": 3, "<tool>": 4}
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    found = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([kinds.get(token, 1) for token in tokens], np.int32),
        "tokenizer.ggml.merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in merges],
        "tokenizer.ggml.bos_token_id": vocab["<|start|>"],
        "tokenizer.ggml.eos_token_id": vocab["<|end|>"],
        "tokenizer.chat_template": "{{ messages }}",
    }
    return {name: value for name, value in found.items() if value is not None}


def _rebuilt(metadata: Mapping[str, Any], usual: str | None = None) -> Tokenizer:
    files, note = tokenizer_of(Path("m.gguf"), metadata, 64, usual)
    assert files is not None
    assert note is None
    return Tokenizer.from_str(files.definition)


TEXTS = [TEXT, "", " ", "\n", "12345 67", "<|end|>x<tool>", "日本 語", "tests'S"]


@pytest.mark.parametrize("pre", CUTS)
def test_a_rebuilt_tokenizer_gives_the_ids_of_the_original(pre: str) -> None:
    original = _original(pre)
    rebuilt = _rebuilt(_metadata(original, pre))
    for sample in TEXTS:
        encoding = rebuilt.encode(sample)
        assert encoding.ids == original.encode(sample).ids
        assert rebuilt.decode(encoding.ids) == original.decode(encoding.ids) or original.decoder is None


@pytest.mark.parametrize("pre", CUTS)
def test_the_runtime_takes_a_rebuilt_tokenizer(pre: str, tmp_path: Path) -> None:
    original = _original(pre)
    files, _ = tokenizer_of(Path("m.gguf"), _metadata(original, pre), 64, None)
    assert files is not None
    (tmp_path / "tokenizer.json").write_text(files.definition, encoding="utf-8")
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.encode(TEXT) == original.encode(TEXT).ids
    ids = original.encode(TEXT, add_special_tokens=False).ids
    composed = unicodedata.normalize("NFC", TEXT) if pre == "qwen2" else TEXT
    assert tokenizer.decode(ids) == composed


def test_a_gpt2_without_a_word_for_it_is_cut_as_gpt2_is() -> None:
    original = _original("gpt-2")
    assert _rebuilt(_metadata(original, None), "gpt-2").encode(TEXT).ids == original.encode(TEXT).ids
    assert _rebuilt(_metadata(original, "default"), "gpt-2").encode(TEXT).ids == original.encode(TEXT).ids


def test_special_tokens_and_the_chat_template_go_along() -> None:
    files, _ = tokenizer_of(Path("m.gguf"), _metadata(_original("qwen2"), "qwen2"), 64, None)
    assert files is not None
    assert files.config["bos_token"] == "<|start|>"
    assert files.config["eos_token"] == "<|end|>"
    assert files.config["chat_template"] == "{{ messages }}"
    assert files.config["model_max_length"] == 64


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tokenizer.ggml.model": "llama"}, "of the kind 'llama', which cannot be rebuilt"),
        ({"tokenizer.ggml.pre": "tekken"}, r"cuts text up \('tekken'\) is not known"),
        ({"tokenizer.ggml.pre": "default"}, r"cuts text up \('default'\) is not known"),
    ],
)
def test_a_tokenizer_that_cannot_be_rebuilt_is_left_out_with_a_note(changes: Any, said: str) -> None:
    files, note = tokenizer_of(Path("m.gguf"), _metadata(_original("gpt-2"), "gpt-2") | changes, 64, None)
    assert files is None
    assert note is not None
    assert re.search(said, note)
    assert "--tokenizer" in note


DAMAGED: dict[str, tuple[str, Any, str]] = {
    "tokens": ("tokens", 3, r"tokenizer\.ggml\.tokens is 3, and a list of texts was expected"),
    "merges": ("merges", None, r"tokenizer\.ggml\.merges is None"),
    "a merge of three": ("merges", ["a b c"], "the merge 'a b c' is not of two tokens"),
    "a merge of strangers": ("merges", ["日 本"], "the merge '日 本' is not of two tokens"),
    "kinds": ("token_type", np.array([1], np.int32), "token_type is an array of 1, and 308"),
    "the end": ("eos_token_id", 10**6, "eos_token_id is 1000000, and an id below"),
    "the end's type": ("eos_token_id", "x", "eos_token_id is 'x', and an id below"),
    "a flag": ("add_bos_token", 1, "add_bos_token is 1, and true or false"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_tokenizer_is_refused_by_name(name: str) -> None:
    key, value, said = DAMAGED[name]
    metadata = _metadata(_original("gpt-2"), "gpt-2") | {f"tokenizer.ggml.{key}": value}
    with pytest.raises(CheckpointError, match=said) as caught:
        tokenizer_of(Path("m.gguf"), metadata, 64, None)
    assert str(caught.value).endswith("take another tokenizer with --tokenizer, or none.")


def test_a_token_twice_is_refused() -> None:
    metadata = _metadata(_original("gpt-2"), "gpt-2")
    metadata["tokenizer.ggml.tokens"][5] = metadata["tokenizer.ggml.tokens"][6]
    with pytest.raises(CheckpointError, match="occurs twice, with the ids 5 and 6"):
        tokenizer_of(Path("m.gguf"), metadata, 64, None)


def test_unused_tokens_are_left_out() -> None:
    metadata = _metadata(_original("gpt-2"), "gpt-2")
    kinds = metadata["tokenizer.ggml.token_type"]
    metadata["tokenizer.ggml.tokens"] += ["[PAD]", "[PAD]"]
    metadata["tokenizer.ggml.token_type"] = np.concatenate([kinds, np.array([5, 5], np.int32)])
    assert _rebuilt(metadata).token_to_id("[PAD]") is None


def test_a_file_brings_its_tokenizer(written: Writer) -> None:
    tokens = [chr(ord("A") + number) for number in range(VOCAB)]
    keys = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*tokens[:-1], "AB"],
        "tokenizer.ggml.merges": ["A B"],
        "tokenizer.ggml.eos_token_id": 3,
    }
    checkpoint = read_checkpoint(written(keys))
    assert checkpoint.tokenizer is not None
    assert Tokenizer.from_str(checkpoint.tokenizer.definition).encode("CAB").ids == [2, VOCAB - 1]
    assert checkpoint.notes == ()
    assert read_checkpoint(written(keys), tokenizer="none").tokenizer is None


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(written: Writer) -> None:
    keys = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*(chr(ord("A") + number) for number in range(VOCAB)), "AB"],
        "tokenizer.ggml.merges": ["A B"],
    }
    with pytest.raises(CheckpointError, match="ids up to 32 and an embedding of 32 rows"):
        read_checkpoint(written(keys))


def test_a_file_without_a_tokenizer_says_so(written: Writer) -> None:
    notes = read_checkpoint(written({"tokenizer.chat_template": "{{ messages }}"})).notes
    assert "no tokenizer" in notes[0]
    assert "chat template" in notes[1]
