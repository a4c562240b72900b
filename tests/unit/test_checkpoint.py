"""Checkpoints: what is written is read back, and what is damaged is refused in one sentence."""

import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import ByteLevelBPETokenizer

from gpt_onnx.checkpoint import Checkpoint, find_shipped, load_model, read_checkpoint, write_checkpoint
from gpt_onnx.checkpoint.byte_level import byte_level_bpe
from gpt_onnx.checkpoint.tokenizer_files import TokenizerFiles, default_tokenizer_config
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError, ConfigError, GptOnnxError
from gpt_onnx.model import GPT

CONFIG = GPTConfig(vocab_size=300, context_length=16, n_embd=16, n_layer=2, n_head=2)
TIED_WEIGHT = "wte.weight"


def make_model() -> GPT:
    torch.manual_seed(0)
    return GPT(CONFIG)


def make_tokenizer(size: int = 257) -> TokenizerFiles:
    alphabet = sorted(chr(33 + i) for i in range(size - 1))
    vocab = {"<|endoftext|>": 0, **{token: 1 + i for i, token in enumerate(alphabet)}}
    tokenizer = byte_level_bpe(vocab, [], "<|endoftext|>")
    return TokenizerFiles(definition=tokenizer.to_str(), config=default_tokenizer_config(16))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "gpt", CONFIG, make_model().state_dict(), make_tokenizer())
    return tmp_path / "gpt"


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the weights of a checkpoint with the reference implementation of the format."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def assert_one_sentence(error: GptOnnxError) -> None:
    text = str(error)
    assert text.endswith(".")
    assert "\n" not in text
    assert len(text) < 500


def refused(folder: Path, match: str, **options: Any) -> None:
    """Assert that the checkpoint is refused, on opening or at the latest when the model is loaded."""
    with pytest.raises(CheckpointError, match=match) as caught:
        load_model(read_checkpoint(folder, **options))
    assert_one_sentence(caught.value)


def test_round_trip_is_exact(folder: Path) -> None:
    loaded = load_model(read_checkpoint(folder))
    assert not loaded.training
    for name, tensor in make_model().state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_the_folder_holds_the_four_files(folder: Path) -> None:
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {entry.name for entry in folder.iterdir()} == names


def test_config_and_tokenizer_round_trip(folder: Path) -> None:
    checkpoint = read_checkpoint(folder)
    assert checkpoint.config == CONFIG
    assert checkpoint.tokenizer == make_tokenizer()


def test_the_reference_implementation_reads_our_file(folder: Path) -> None:
    state = make_model().state_dict()
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert set(file.keys()) == set(state)
        assert all(torch.equal(file.get_tensor(name), tensor) for name, tensor in state.items())


@pytest.mark.parametrize(("store", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_half_precision_is_stored_rounded_once_and_read_as_float32(
    tmp_path: Path, store: str, dtype: torch.dtype
) -> None:
    state = make_model().state_dict()
    write_checkpoint(tmp_path / "gpt", CONFIG, state, store=store)
    stored = load_file(tmp_path / "gpt" / "model.safetensors")
    loaded = load_model(read_checkpoint(tmp_path / "gpt")).state_dict()
    for name, tensor in state.items():
        assert stored[name].dtype == dtype
        assert torch.equal(loaded[name], tensor.to(dtype).float())


def test_load_model_converts_to_the_dtype_asked_for(folder: Path) -> None:
    model = load_model(read_checkpoint(folder), torch.float64)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}


def test_weights_are_read_one_at_a_time_and_not_before_they_are_asked_for(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors["ln_f.bias"].fill_(torch.nan))
    checkpoint = read_checkpoint(folder)
    assert torch.equal(checkpoint.tensor(TIED_WEIGHT), make_model().wte.weight)
    assert checkpoint.numpy(TIED_WEIGHT).dtype == np.float32


def test_equal_checkpoints_have_equal_hashes_wherever_they_lie(folder: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "other", CONFIG, make_model().state_dict(), make_tokenizer())
    assert read_checkpoint(tmp_path / "other").sha256 == read_checkpoint(folder).sha256


def test_the_hash_changes_with_any_weight_the_config_and_the_tokenizer(folder: Path) -> None:
    hashes = {read_checkpoint(folder).sha256, read_checkpoint(folder, tokenizer="none").sha256}
    (folder / "config.json").write_text(json.dumps(CONFIG.replace(norm_eps=1e-6).to_dict()))
    hashes.add(read_checkpoint(folder).sha256)
    rewrite(folder, lambda tensors: tensors["ln_f.bias"][3:4].fill_(1e-30))
    hashes.add(read_checkpoint(folder).sha256)
    assert len(hashes) == 4


def test_writing_twice_gives_equal_bytes(folder: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "other", CONFIG, make_model().state_dict(), make_tokenizer())
    for entry in folder.iterdir():
        assert entry.read_bytes() == (tmp_path / "other" / entry.name).read_bytes()


def test_an_existing_folder_is_not_overwritten_unasked(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="exists"):
        write_checkpoint(folder, CONFIG, make_model().state_dict())


def test_overwriting_replaces_the_checkpoint_and_leaves_other_files_alone(folder: Path) -> None:
    (folder / "README.md").write_text("mine")
    zeros = {name: torch.zeros_like(tensor) for name, tensor in make_model().state_dict().items()}
    write_checkpoint(folder, CONFIG, zeros, overwrite=True)
    checkpoint = read_checkpoint(folder)
    assert checkpoint.tokenizer is None
    assert not checkpoint.numpy(TIED_WEIGHT).any()
    assert sorted(entry.name for entry in folder.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gpt_onnx.checkpoint.writer.write_file", fail)
    with pytest.raises(CheckpointError, match="No space left") as caught:
        write_checkpoint(tmp_path / "gpt", CONFIG, make_model().state_dict())
    assert_one_sentence(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_overwrite_leaves_the_old_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gpt_onnx.checkpoint.writer.write_file", fail)
    before = {entry.name: entry.read_bytes() for entry in folder.iterdir()}
    with pytest.raises(CheckpointError, match="No space left"):
        write_checkpoint(folder, CONFIG, make_model().state_dict(), make_tokenizer(), overwrite=True)
    assert {entry.name: entry.read_bytes() for entry in folder.iterdir()} == before


def test_weights_of_another_configuration_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"wte.weight has the shape \(300, 16\)"):
        write_checkpoint(tmp_path / "gpt", CONFIG.replace(vocab_size=400), make_model().state_dict())


def test_weights_beyond_half_precision_are_not_written_as_infinity(tmp_path: Path) -> None:
    state = make_model().state_dict()
    state["ln_f.weight"] = torch.full_like(state["ln_f.weight"], 1e6)
    with pytest.raises(CheckpointError, match=r"ln_f\.weight has a value of 1e\+06, and fp16 ends at 65,504"):
        write_checkpoint(tmp_path / "gpt", CONFIG, state, store="fp16")


def test_a_missing_checkpoint_names_what_is_supported(tmp_path: Path) -> None:
    refused(
        tmp_path / "nowhere",
        r"does not exist; a checkpoint is a Hugging Face folder \(gpt2, llama, mistral, qwen2\), a GGUF file "
        r"\(gpt2, llama, qwen2\), what C\+\+ wrote \(torch::save, OutputArchive\), nanoGPT's ckpt\.pt, "
        r"minGPT's model\.pt, a state dict \(torch\.save, safetensors, np\.savez\) or our own folder "
        r"\(config\.json, model\.safetensors\)\.",
    )


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refused(folder, f"has no {name}")


def test_a_broken_config_is_refused(folder: Path) -> None:
    (folder / "config.json").write_text("{" * 100_000)
    with pytest.raises(ConfigError, match="could not be read as JSON"):
        read_checkpoint(folder)


def test_a_missing_tensor_is_named(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.pop("h.1.mlp.c_fc.weight"))
    refused(folder, "lacks 1 of the model's tensors, h.1.mlp.c_fc.weight first")


def test_an_unexpected_tensor_is_named(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(300, 16)}))
    refused(folder, "has 1 tensors unknown to the model of config.json, lm_head.weight first")


def test_a_wrong_shape_is_named(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({"ln_f.weight": torch.zeros(17)}))
    refused(folder, r"ln_f.weight has the shape \[17\]; by config.json it must be \[16\]")


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_weight_that_is_not_finite_is_named(folder: Path, value: float) -> None:
    rewrite(folder, lambda tensors: tensors["h.0.attn.c_attn.weight"][3].fill_(value))
    refused(folder, "h.0.attn.c_attn.weight has NaN or infinity in 16 of 768 places")


def test_integer_weights_are_refused(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({"ln_f.weight": torch.ones(16, dtype=torch.int64)}))
    refused(folder, "ln_f.weight has dtype 'I64'")


def test_every_truncation_of_the_weights_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    for size in [0, 1, 7, 8, 9, header - 1, header, header + 1, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:size])
        refused(folder, "truncated|has a header")


def test_bytes_after_the_last_tensor_are_refused(folder: Path) -> None:
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"\0")
    refused(folder, "has bytes added")


def with_header(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the header of the weights and leave the data as they are."""
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length :])


HEADER_FAULTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "overlap": (lambda header: header.update(extra=dict(header[TIED_WEIGHT])), "overlaps"),
    "gap": (lambda header: header.pop("h.0.ln_1.weight"), "gap|truncated"),
    "negative offset": (
        lambda header: header["ln_f.bias"].update(data_offsets=[-64, 0]),
        "ln_f.bias has 64 bytes at -64",
    ),
    "size": (lambda header: header["ln_f.bias"].update(shape=[17]), "ln_f.bias has 64 bytes"),
    "negative shape": (lambda header: header["ln_f.bias"].update(shape=[-4, -4]), "ln_f.bias has the shape"),
    "boolean shape": (lambda header: header["ln_f.bias"].update(shape=[True, 16]), "ln_f.bias has the shape"),
    "huge shape": (lambda header: header["ln_f.bias"].update(shape=[2**62, 2**62]), "ln_f.bias has 64 bytes"),
    "offsets": (lambda header: header["ln_f.bias"].update(data_offsets=["0", "64"]), "two integers"),
    "dtype": (lambda header: header["ln_f.bias"].update(dtype=["F32"]), "ln_f.bias has dtype"),
    "missing key": (lambda header: header["ln_f.bias"].pop("dtype"), "needs exactly"),
    "list for a tensor": (lambda header: header.update({"ln_f.bias": []}), "needs exactly"),
    "metadata": (lambda header: header.update(__metadata__={"format": 1}), "__metadata__"),
}


@pytest.mark.parametrize("fault", HEADER_FAULTS)
def test_a_header_that_breaks_a_rule_is_refused(folder: Path, fault: str) -> None:
    change, match = HEADER_FAULTS[fault]
    with_header(folder, change)
    refused(folder, match)


@pytest.mark.parametrize("text", [b"[]", b"not JSON", b"\xff\xfe", b"[" * 100_000, b'{"a": 1, "a": 2}'])
def test_a_header_that_is_no_object_is_refused(folder: Path, text: bytes) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    refused(folder, "header")


def test_a_header_length_beyond_the_file_allocates_nothing(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**63) + b"{}")
    refused(folder, "truncated or not a safetensors file")


class Malicious:
    """Unpickling this writes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.target, "owned")


@pytest.mark.parametrize("name", ["gpt.pt", "pytorch_model.bin", "gpt.ckpt"])
def test_a_pickle_is_refused_and_never_run(tmp_path: Path, name: str) -> None:
    target = tmp_path / "owned"
    (tmp_path / name).write_bytes(pickle.dumps(Malicious(target)))
    refused(tmp_path / name, "a bare pickle of Python objects, which may run code and is not opened")
    assert not target.exists()


def test_a_pickle_in_place_of_weights_is_refused_and_never_run(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "owned"
    (folder / "model.safetensors").write_bytes(pickle.dumps(Malicious(target)))
    refused(folder, "not a safetensors file")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Malicious(target)))
    refused(folder, "has no model.safetensors")
    assert not target.exists()


def test_a_file_in_a_folder_that_is_no_checkpoint_is_offered(tmp_path: Path) -> None:
    torch.save(make_model().state_dict(), tmp_path / "mine.pt")
    refused(tmp_path, r"is no checkpoint, but holds mine\.pt \(state dict\): name .*mine\.pt;")


def test_a_checkpoint_needs_no_tokenizer(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "gpt", CONFIG, make_model().state_dict())
    assert read_checkpoint(tmp_path / "gpt").tokenizer is None


def test_a_tokenizer_can_be_left_out_or_taken_from_elsewhere(folder: Path, tmp_path: Path) -> None:
    assert read_checkpoint(folder, tokenizer="none").tokenizer is None
    (tmp_path / "other.json").write_text(make_tokenizer(100).definition)
    taken = read_checkpoint(folder, tokenizer=tmp_path / "other.json").tokenizer
    assert taken is not None
    assert taken.vocab_size == 100


def test_a_tokenizer_with_more_ids_than_the_model_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").write_text(make_tokenizer(301).definition)
    refused(folder, "ids up to 300 and the model's vocabulary has 300 rows")


def test_an_added_token_counts_as_an_id(folder: Path) -> None:
    tokenizer = json.loads(make_tokenizer().definition)
    tokenizer["added_tokens"][0]["id"] = 300
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    refused(folder, "ids up to 300")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"model": []}', '{"model": {"vocab": {"a": "b"}}}', "[" * 100_000]
)
def test_a_broken_tokenizer_is_refused(folder: Path, text: str) -> None:
    (folder / "tokenizer.json").write_text(text)
    refused(folder, "tokenizer.json")


def test_a_missing_tokenizer_is_refused(folder: Path, tmp_path: Path) -> None:
    refused(folder, "does not exist", tokenizer=tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    refused(folder, "has neither tokenizer.json nor vocab.json", tokenizer=tmp_path / "empty")


def test_vocab_and_merges_become_a_tokenizer_with_the_same_ids(folder: Path) -> None:
    """The peer is the tokenizers library's own reader of the two files."""
    (folder / "tokenizer.json").unlink()
    peer = ByteLevelBPETokenizer()
    texts = ["the people of the United States", "“Union” — naïve 😀", "  spaces\n\nand\tlines"]
    peer.train_from_iterator(texts, vocab_size=290, min_frequency=1, special_tokens=["<|endoftext|>"])
    peer.save_model(str(folder))
    files = read_checkpoint(folder).tokenizer
    assert files is not None
    from tokenizers import Tokenizer

    ours = Tokenizer.from_str(files.definition)
    for text in [*texts, "another text, with new words"]:
        assert ours.encode(text).ids == peer.encode(text).ids
        assert ours.decode(ours.encode(text).ids) == text
    assert ours.encode("<|endoftext|>").ids == [0]


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt"])
def test_either_of_vocab_and_merges_names_both(folder: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "pair").mkdir()
    (tmp_path / "pair/vocab.json").write_text('{"a": 0, "b": 1, "ab": 2}')
    (tmp_path / "pair/merges.txt").write_text("#version: 0.2\na b\n")
    found = read_checkpoint(folder, tokenizer=tmp_path / "pair" / name).tokenizer
    assert found == read_checkpoint(folder, tokenizer=tmp_path / "pair").tokenizer
    assert found is not None
    assert found.vocab_size == 3
    (tmp_path / "pair/merges.txt").rename(tmp_path / "pair/other")
    refused(folder, "merges.txt", tokenizer=tmp_path / "pair/vocab.json")


def test_half_of_vocab_and_merges_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text('{"a": 0}')
    refused(folder, "has vocab.json and no merges.txt")


@pytest.mark.parametrize(
    ("vocab", "merges", "match"),
    [
        ('{"a": 0}', "a b\n", "do not fit together"),
        ('{"a": 0}', "a b c\n", "two tokens"),
        ('{"a": "0"}', "", "ids"),
        ('{"a": -5}', "", "gives 'a' the id -5; ids are whole numbers from 0 to 2147483647"),
        ('{"a": 4294967296}', "", "gives 'a' the id 4294967296; ids are whole numbers"),
        ('{"a": true}', "", "gives 'a' the id True"),
    ],
)
def test_a_broken_vocab_or_merges_is_refused(folder: Path, vocab: str, merges: str, match: str) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(vocab)
    (folder / "merges.txt").write_text(merges)
    refused(folder, match)


def test_the_shipped_checkpoint_opens() -> None:
    shipped = find_shipped()
    assert shipped is not None
    checkpoint: Checkpoint = read_checkpoint(shipped)
    assert checkpoint.tokenizer is not None
    assert checkpoint.tokenizer.vocab_size == checkpoint.config.vocab_size == 4096


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match="could not be written") as caught:
        write_checkpoint(tmp_path / "file" / "gpt", CONFIG, make_model().state_dict())
    assert_one_sentence(caught.value)
    with pytest.raises(CheckpointError, match="exists"):
        write_checkpoint(tmp_path / "file", CONFIG, make_model().state_dict())
    with pytest.raises(CheckpointError, match="is not a folder"):
        write_checkpoint(tmp_path / "file", CONFIG, make_model().state_dict(), overwrite=True)
    assert (tmp_path / "file").read_text() == "in the way"


def test_an_unknown_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be stored as 'int8'; known are fp32, fp16, bf16"):
        write_checkpoint(tmp_path / "gpt", CONFIG, make_model().state_dict(), store="int8")


def test_weights_that_vanish_after_opening_are_one_sentence(folder: Path) -> None:
    checkpoint = read_checkpoint(folder)
    (folder / "model.safetensors").write_bytes(b"short")
    with pytest.raises(CheckpointError, match="could not be read any more"):
        checkpoint.tensor(TIED_WEIGHT)
    with pytest.raises(CheckpointError, match="has no tensor 'nothing'"):
        checkpoint.tensor("nothing")
