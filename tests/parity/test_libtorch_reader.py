"""The reader of LibTorch archives: what it asks, what it finds out, and what it refuses."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpt_onnx.checkpoint import read_checkpoint
from gpt_onnx.checkpoint.archive import flatten, read_archive
from gpt_onnx.checkpoint.load import load_model
from gpt_onnx.checkpoint.readers import libtorch
from gpt_onnx.checkpoint.readers._reader import ReadOptions
from gpt_onnx.checkpoint.spellings import spelled
from gpt_onnx.errors import CheckpointError, ConfigError, InputError
from tests.originals.cpp import CPP_ANSWERS, LEARNED

CppMaker = Callable[..., Any]


def test_tensors_are_read_as_pytorch_reads_them(make_cpp: CppMaker) -> None:
    made = make_cpp(mask=1)
    expected = made.numbers("module")
    found = read_archive(made.module)
    tensors = flatten(found.root, made.module)
    assert tensors.keys() == expected.keys()
    assert all((found.read(tensor) == expected[name]).all() for name, tensor in tensors.items())


def test_stored_table_of_sines_is_known_by_its_values(make_cpp: CppMaker) -> None:
    made = make_cpp(position="buffer")
    checkpoint = read_checkpoint(
        made.module, config=made.config(position=None, sinusoidal_style=None, context_length=100)
    )
    assert (checkpoint.config.position, checkpoint.config.sinusoidal_style) == ("sinusoidal", "interleaved")
    assert "positional_encoding.pe holds sinusoidal positions" in checkpoint.notes[0]
    numbers = made.numbers("reference64")
    with torch.no_grad():
        found = load_model(checkpoint, torch.float64)(torch.from_numpy(numbers["input_ids"]))[0].numpy()
    assert np.abs(found - numbers["logits"]).max() <= 1e-4  # the table itself is float32
    with pytest.raises(ConfigError, match="has 192 rows"):
        read_checkpoint(
            made.module, config=made.config(position=None, sinusoidal_style=None, context_length=193)
        )


def test_table_of_positions_that_is_no_formula_is_asked_about(make_cpp: CppMaker, tmp_path: Path) -> None:
    path = rewritten(
        make_cpp(position="buffer").module, tmp_path / "scaled.pt", "positional_encoding.pe", 0.5
    )
    with pytest.raises(
        InputError, match=r"positional_encoding\.pe is a table of positions that was not trained"
    ):
        read_checkpoint(path, config=make_cpp().config())


def test_what_tensors_cannot_say_is_asked_with_its_choices(make_cpp: CppMaker) -> None:
    made = make_cpp()
    with pytest.raises(InputError) as caught:
        read_checkpoint(made.module)
    for words in (
        'position ("sinusoidal", "rotary" or "alibi")',
        'activation ("relu", "gelu", "gelu_tanh" or "silu")',
        "norm_eps (a number such as 1e-5)",
        "attention_scale (",
        "context_length (",
        "norm_order (",
        "embedding_scale (",
        "--dry-run > gpt.toml writes a template",
    ):
        assert words in str(caught.value)
    assert "n_head" not in str(caught.value)
    with pytest.raises(InputError, match=r"does not say sinusoidal_style \("):
        read_checkpoint(made.module, config=made.config(sinusoidal_style=None))
    with pytest.raises(InputError, match=r"does not say n_head \(a number such as 12\):"):
        read_checkpoint(make_cpp(kind="packed").module, config=made.config(**LEARNED))


def sheet_of(path: Path) -> str:
    assert libtorch.READER.template is not None
    return libtorch.READER.template(path, ReadOptions())


def test_documentation_shows_the_template_as_it_is(make_cpp: CppMaker, tmp_path: Path) -> None:
    path = tmp_path / "gpt.pt"
    path.write_bytes(make_cpp().module.read_bytes())
    page = Path(__file__).resolve().parents[2] / "docs" / "cpp.md"
    assert sheet_of(path) in page.read_text(encoding="utf-8")


def test_filled_template_is_a_configuration(make_cpp: CppMaker, tmp_path: Path) -> None:
    made = make_cpp()
    text = sheet_of(made.module)
    for key, answer in CPP_ANSWERS.items():
        text = re.sub(rf"# {key} = .*", f"{key} = {json.dumps(answer)}", text)
    (tmp_path / "gpt.toml").write_text(text)
    filled = read_checkpoint(made.module, config=tmp_path / "gpt.toml").config
    assert filled == read_checkpoint(made.module, config=made.config()).config
    assert (filled.vocab_size, filled.n_embd, filled.n_layer, filled.n_head, filled.d_ff) == (
        53,
        24,
        2,
        3,
        80,
    )
    assert filled.qkv_bias
    assert filled.head_bias
    assert not filled.tie_embeddings


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"n_layer": 3}, "says n_layer = 3; the tensors of .* say 2"),
        ({"n_head": 4}, "says n_head = 4; the tensors of .* say 3"),
        ({"tie_embeddings": True}, "says tie_embeddings = True; the tensors of .* say False"),
        ({"activation": "swiglu"}, "says activation = 'swiglu'; the tensors of .* leave relu, gelu"),
        ({"position": "learned"}, "says position = 'learned'; the tensors of .* leave sinusoidal"),
    ],
)
def test_answer_that_a_tensor_contradicts_is_refused(
    answers: dict[str, Any], message: str, make_cpp: CppMaker
) -> None:
    made = make_cpp()
    lines = [f"{key} = {json.dumps(value)}" for key, value in {**CPP_ANSWERS, **answers}.items()]
    path = made.folder / "contradiction.toml"
    path.write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=message):
        read_checkpoint(made.module, config=path)


def members_of(path: Path) -> dict[str, bytes]:
    """Return the members of an archive."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_members(path: Path, members: Mapping[str, bytes]) -> Path:
    """Write an archive as LibTorch does: nothing is compressed."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def rewritten(path: Path, copy: Path, name: str, factor: float) -> Path:
    """Write a copy of an archive in which one tensor is multiplied."""
    tensor = flatten(read_archive(path).root, path)[name]
    members = members_of(path)
    member = f"{path.stem}/data/{tensor.storage.key}"
    members[member] = (np.frombuffer(members[member], np.float32) * np.float32(factor)).tobytes()
    return write_members(copy, members)


def test_code_of_an_archive_is_never_run_nor_read(make_cpp: CppMaker, tmp_path: Path) -> None:
    made, ran = make_cpp(), tmp_path / "ran"
    members = members_of(made.module)
    code = f"import os\nos.system('touch {ran}')\nclass Module(Module):\n  def __setstate__(self, x): ...\n"
    for name in members:
        if "/code/" in name:
            members[name] = code.encode()
    path = write_members(tmp_path / "hostile.pt", members)
    expected = read_checkpoint(made.module, config=made.config())
    found = read_checkpoint(path, config=made.config())
    assert all((found.numpy(name) == expected.numpy(name)).all() for name in expected.recipes)
    assert not ran.exists()


def test_pickle_that_would_run_a_program_is_refused(make_cpp: CppMaker, tmp_path: Path) -> None:
    made, ran = make_cpp(), tmp_path / "ran"
    members = members_of(made.module)
    members["module/data.pkl"] = f"cos\nsystem\n(S'touch {ran}'\ntR.".encode()
    path = write_members(tmp_path / "hostile.pt", members)
    assert libtorch.recognises(path)
    with pytest.raises(CheckpointError, match=r"hostile\.pt.*would run"):
        read_checkpoint(path, config=made.config())
    assert not ran.exists()


def test_unknown_names_are_told_and_a_table_reads_them(make_cpp: CppMaker, tmp_path: Path) -> None:
    made = make_cpp()
    members = members_of(made.module)
    data = members["module/data.pkl"]
    for old, new in ((b"mha", b"zzz"), (b"ln_f", b"last")):  # of one length: the pickle counts bytes
        data = data.replace(old, new)
    path = write_members(tmp_path / "odd.pt", members | {"module/data.pkl": data})
    with pytest.raises(InputError) as caught:
        read_checkpoint(path, config=made.config())
    for words in (
        "blocks.{layer}.zzz.heads.{head}.key.weight [8, 24] (6 times) like h.{layer}.attn.",
        "blocks.{layer}.zzz.proj.weight [24, 24] (2 times) like h.{layer}.attn.c_proj.weight",
        "--names FILE",
    ):
        assert words in str(caught.value)
    table = tmp_path / "names.toml"
    lines = [
        line.replace("mha", "zzz").replace('"ln_f', '"last', 1)
        for line in (
            f'"{name.theirs}" = "{name.ours}"' for name in spelled(made.numbers("module")).naming.names
        )
    ]
    table.write_text("\n".join(["[names]", *lines]))
    found = read_checkpoint(path, config=made.config(), names=table)
    expected = read_checkpoint(made.module, config=made.config())
    assert all((found.numpy(name) == expected.numpy(name)).all() for name in expected.recipes)


def test_head_that_cpp_assigned_to_is_stored_as_it_was(make_cpp: CppMaker, tmp_path: Path) -> None:
    """``lm_head->weight = wte->weight`` does not change the registered parameter, which is what is saved."""
    made = make_cpp(kind="packed", tied=2)
    numbers, answers = made.numbers("reference64"), made.config(**LEARNED, n_head=3)

    def error(**options: Any) -> float:
        model = load_model(read_checkpoint(made.module, config=answers, **options), torch.float64)
        with torch.no_grad():
            found = model(torch.from_numpy(numbers["input_ids"]))[0].numpy()
        return float(np.abs(found - numbers["logits"]).max())

    table = tmp_path / "names.toml"
    table.write_text('ignore = ["lm_head.weight"]\n[names]\n"wte.weight" = "wte.weight"\n')
    assert error() > 0.1
    assert error(names=table) <= 1e-11 * np.abs(numbers["logits"]).max()
