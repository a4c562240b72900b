"""``gpt-onnx export --precision int4`` as a user types it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from gpt_onnx.checkpoint import write_checkpoint
from gpt_onnx.cli._export_answer import folded
from gpt_onnx.config import GPTConfig
from gpt_onnx.model import GPT

CONFIG = GPTConfig(vocab_size=61, context_length=32, n_embd=32, n_layer=1, n_head=2)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpt_onnx", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("source") / "tiny"
    write_checkpoint(path, CONFIG, GPT(CONFIG).state_dict())
    return path


@pytest.fixture(scope="module")
def exported(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """An int4 bundle of a checked export, and what the export printed."""
    path = tmp_path_factory.mktemp("exported") / "int4"
    result = run("export", str(checkpoint), "--precision", "int4", "--check", "quick", "-o", str(path))
    assert result.returncode == 0, result.stderr
    return path, result.stdout


def test_an_export_ends_with_size_speed_and_quality(exported: tuple[Path, str]) -> None:
    last = exported[1].strip().splitlines()[-1]
    assert re.fullmatch(
        r"[\d.]+ MB of weights instead of [\d.]+, [\d,]+ tokens/s on this machine, "
        r"KL mean \S+ against fp32, perplexity x [\d.]+ \+- \S+, top-1 [\d.]+ %\.",
        last,
    )


def test_what_stays_float_is_listed(exported: tuple[Path, str]) -> None:
    path, said = exported
    info = json.loads((path / "manifest.json").read_text())["quantization"]
    assert f"Kept in fp32: {', '.join(folded(info['float_weights']))}." in said.replace("\n", " ")
    listed = said[said.index("Kept in fp32") :].partition(".\n")[0]
    assert max(map(len, listed.splitlines())) <= 120
    assert "h.*.ln_1.weight" in info["float_weights"]
    assert not any("attn.c_attn.weight" in name for name in info["float_weights"])


def test_names_of_one_part_are_folded() -> None:
    names = ["h.*.ln_1.bias", "h.*.ln_1.weight", "h.*.mlp.c_fc.bias", "ln_f.weight", "table"]
    assert list(folded(names)) == ["h.*.ln_1.{bias,weight}", "h.*.mlp.c_fc.bias", "ln_f.weight", "table"]


def test_quality_is_stored_and_told(exported: tuple[Path, str]) -> None:
    path, _ = exported
    quality = json.loads((path / "quality.json").read_text())
    assert quality["text"].startswith("random ids")
    assert "quality.json" in (path / "README.md").read_text()


def test_a_bundle_of_integers_verifies_and_generates(exported: tuple[Path, str]) -> None:
    path, _ = exported
    assert run("verify", str(path)).returncode == 0
    result = run("generate", str(path), "--prompt-ids", "1,2,3", "-n", "4", "--ignore-eos")
    assert len(re.findall(r"\d+", result.stdout)) >= 4


def test_a_bundle_too_far_from_float_is_not_published(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "b"
    result = run(
        *("export", str(checkpoint), "--precision", "int4", "--check", "none", "--max-kl", "1e-9"),
        *("-o", str(out)),
    )
    assert result.returncode == 3
    assert "--max-kl is 1e-09" in result.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--block-size", "64"), 2, "--block-size is 64 and the weights stay fp32"),
        (("--precision", "int4", "--max-kl", "-1"), 2, "'--max-kl': -1.0 is not in the range x>0"),
        (("--precision", "int8", "--seq-len", "1"), 2, "--seq-len is 1, and the quality of int8"),
        (("--calibration", "{short}"), 2, "--calibration is .* and the weights stay fp32"),
        (("--precision", "int4", "--block-size", "64"), 1, "weight has 32 inputs, which blocks of 64"),
        (("--precision", "int4", "--quantizer", "gptq"), 1, "'gptq' reads text, and tiny has no tokenizer"),
        (("--precision", "int4", "--calibration", "{short}"), 1, "short.npy has 50 ids and .* 28,673"),
        (("--precision", "int4", "--calibration", "{little}"), 1, "little.txt has 20 letters and .* 28,673"),
        (("--precision", "int4", "--calibration", "{absent}"), 1, "absent.txt does not exist"),
        (("--precision", "int4", "--calibration", "."), 1, "calibration file . is no plain file"),
        (("--precision", "int4", "--calibration", "{binary}"), 1, "binary.txt is not UTF-8 at byte 0"),
    ],
)
def test_a_mistake_is_one_sentence(
    checkpoint: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "little.txt").write_text("twenty letters of it")
    np.save(tmp_path / "short.npy", np.arange(50))
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe" * 100)
    files = {name: f"{name}.txt" for name in ("absent", "binary", "little")} | {"short": "short.npy"}
    places = {name: str(tmp_path / file) for name, file in files.items()}
    given = [argument.format(**places) for argument in arguments]
    result = run("export", str(checkpoint), *given, "-o", str(tmp_path / "b"))
    assert result.returncode == code
    assert re.search(said, result.stderr), result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "b").exists()


def test_a_quantised_bundle_is_no_source(exported: tuple[Path, str], tmp_path: Path) -> None:
    result = run("export", str(exported[0]), "--precision", "int4", "-o", str(tmp_path / "again"))
    assert result.returncode == 1
    assert "bundle" in result.stderr
    assert "Traceback" not in result.stderr
