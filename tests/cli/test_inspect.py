"""``gpt-onnx inspect`` says what a bundle is, to people and to scripts, and runs nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpt_onnx.bundle import Manifest, seal
from gpt_onnx.cli._units import in_units
from gpt_onnx.cli.inspect import collapsed, command
from gpt_onnx.errors import BundleError
from tests.resealing import reseal

BundleMaker = Callable[..., Path]


def _text(*arguments: str | Path) -> str:
    result = CliRunner().invoke(command, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def _json(*arguments: str | Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(_text(*arguments, "--json"))
    return facts


def _with_evidence(path: Path, manifest: Manifest, parity: object) -> Path:
    (path / "parity.json").write_text(json.dumps(parity))
    (path / "reference.safetensors").write_bytes(b"")
    seal(path, manifest)
    return path


def test_json_holds_every_fact(make_bundle: BundleMaker) -> None:
    path = make_bundle()
    facts = _json(path)
    graph = facts["graphs"]["model"]
    assert (facts["target"], facts["precision"]) == ("portable", "fp32")
    assert (facts["layout"], facts["opset"], facts["ir_version"]) == ("dynamic", 21, 10)
    assert graph["inputs"][0] == {
        "name": "input_ids",
        "type": "int64",
        "dims": ["batch_size", "sequence_length"],
    }
    assert [port["name"] for port in graph["outputs"]][:2] == ["logits", "present.0.key"]
    assert graph["ops"] == {"Concat": 4, "Gather": 1, "MatMul": 1, "Reshape": 1, "Transpose": 1}
    assert (
        facts["cache_bytes_per_token"] == 2 * 2 * 2 * 8 * 4
    )  # layers, keys and values, heads, size, float32
    assert (facts["checked"], facts["compared_with_original"], facts["parity"]) == (False, False, None)
    assert facts["model"]["parameters"] == 2 * 11 * 16
    assert facts["versions"]["torch"] == "2.13.0"
    assert facts["files"] == {"count": 4, "verified": "sizes and SHA-256"}


def test_bytes_by_kind_add_up_to_the_folder(make_bundle: BundleMaker) -> None:
    path = make_bundle()
    sizes = _json(path)["bytes"]
    total = sizes.pop("total")
    assert (
        total == sum(sizes.values()) == sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    )
    assert sizes["weights"] == (path / "onnx/model.onnx_data").stat().st_size
    assert sizes["graph"] == (path / "onnx/model.onnx").stat().st_size
    assert sizes["tokenizer"] == 3


def test_people_read_a_table(make_bundle: BundleMaker) -> None:
    lines = [" ".join(line.split()) for line in _text(make_bundle()).splitlines()]
    for line in (
        "toy",
        "target portable",
        "weights fp32",
        "layout dynamic (decomposed attention)",
        "opset / IR 21 / 10",
        "parameters 352, vocabulary 11",
        "cache 256 B a token (2 layers, 2 heads of 8)",
        "parity NOT checked against PyTorch",
        "original not compared with the original program: it was made with --check none",
        "files 4, sizes and SHA-256 verified",
        "versions onnx 1.20.0, torch 2.13.0",
        "input past_key_values.{0..1}.key float32 batch_size, 2, past_sequence_length, 8",
        "8 nodes: 4 Concat, 1 Gather, 1 MatMul, 1 Reshape, 1 Transpose",
    ):
        assert line in lines


@pytest.mark.parametrize("layout", ["static", "plain"])
def test_other_layouts_are_told(make_bundle: BundleMaker, layout: str) -> None:
    text = _text(make_bundle(layout=layout))
    assert {
        "static": "graph decode: onnx/decode.onnx",
        "plain": "graph model: onnx/model.onnx",
    }[layout] in text
    assert ("length 16, batch 1" in text) == (layout == "static")


def test_the_evidence_is_summed_up(tiny_bundle: Any) -> None:
    path = tiny_bundle(check="quick").path
    told, summary = _json(path)["parity"], json.loads((path / "parity.json").read_text())["summary"]
    assert told == {"level": "quick"} | {key: summary[key] for key in told if key != "level"}
    cases, worst = told["cases"] - told["skipped"], told["worst_ratio"]
    said = f"checked (quick, {cases} cases, worst error {worst:.3g} times what float32 costs)"
    assert said in _text(path)
    assert "original    compared with the original program" in _text(path)


def test_what_was_not_checked_says_so(make_bundle: BundleMaker) -> None:
    assert "NOT checked against PyTorch" in _text(make_bundle())


@pytest.mark.parametrize("parity", [{}, {"summary": 3, "level": 7}, {"summary": {"cases": "many"}}])
def test_odd_evidence_is_refused(
    make_bundle: BundleMaker, make_manifest: Callable[..., Manifest], parity: object
) -> None:
    path = _with_evidence(make_bundle(), make_manifest(checked=True), parity)
    with pytest.raises(BundleError, match=r"parity.json cannot be understood: (it lacks )?level"):
        _text(path)


def test_unreadable_evidence_is_an_error(
    make_bundle: BundleMaker, make_manifest: Callable[..., Manifest]
) -> None:
    path = _with_evidence(make_bundle(), make_manifest(checked=True), [])
    with pytest.raises(BundleError, match=r"parity\.json cannot be understood: it holds a list"):
        _text(path)


def test_no_hash_is_told(make_bundle: BundleMaker) -> None:
    path = make_bundle()
    (path / "tokenizer.json").write_text("[]\n")
    assert "files       4, sizes verified" in _text(path, "--no-hash")
    with pytest.raises(BundleError, match=r"tokenizer\.json is damaged"):
        _text(path)


def test_a_file_cannot_move_the_cursor(make_bundle: BundleMaker) -> None:
    text = _text(make_bundle(versions={"\x1b[2J[red]torch": "1\n2"}))
    assert "\x1b" not in text
    assert "\ufffd[2J[red]torch 1\ufffd2" in text


def test_layers_are_collapsed() -> None:
    def port(name: str, *dims: object) -> dict[str, object]:
        return {"name": name, "type": "float32", "dims": list(dims)}

    ports = [port(f"present.{i}.{part}", 1, "t") for i in range(12) for part in ("key", "value")]
    assert list(collapsed([port("logits"), *ports, port("x.7.y", 2)])) == [
        ("logits", "float32", "scalar"),
        ("present.{0..11}.key", "float32", "1, t"),
        ("present.{0..11}.value", "float32", "1, t"),
        ("x.7.y", "float32", "2"),
    ]


@pytest.mark.parametrize(
    ("size", "said"),
    [(0, "0 B"), (9_999, "9,999 B"), (10_000, "10.0 kB"), (5_300_000, "5.3 MB"), (7 * 10**9, "7.00 GB")],
)
def test_sizes_for_people(size: int, said: str) -> None:
    assert in_units(size) == said


def _run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpt_onnx", "inspect", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_clear_error_is_one_sentence_and_code_1(tmp_path: Path) -> None:
    done = _run(tmp_path / "absent")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {tmp_path / 'absent'} is not there; a bundle is a folder.\n"


def test_it_needs_nothing_heavy(make_bundle: BundleMaker) -> None:
    path = make_bundle()
    code = (
        "import sys\n"
        "for name in ('torch', 'onnx', 'onnxruntime', 'numpy', 'tokenizers'): sys.modules[name] = None\n"
        "from gpt_onnx.cli import main\n"
        f"main(['inspect', {str(path)!r}, '--json'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["name"] == "toy"


def test_clients_are_told_with_versions_and_reasons(tiny_bundle: Any) -> None:
    text = _text(tiny_bundle().path, "--clients")
    rows = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "1.19.2 to " in rows["onnxruntime"]
    assert (
        "its graph has operators of com.microsoft; export with --target portable"
        in rows["ONNX reference evaluator"]
    )
    assert "operators of model" not in text


def test_clients_are_in_the_json_where_they_are_asked_for(tiny_bundle: Any) -> None:
    path = tiny_bundle(seq_len=32, batch_size=2).path
    assert "clients" not in _json(path)
    clients = {client["name"]: client for client in _json(path, "--clients")["clients"]}
    assert clients["onnxruntime"]["runs"]
    genai = clients["onnxruntime-genai"]
    assert not genai["runs"]
    assert genai["why_not"][0].startswith("its layout is static and this client feeds one graph")
    assert {"package", "oldest", "newest_tried", "versions", "limits"} < set(genai)


def test_clients_of_a_bundle_whose_files_tell_them_wrong_are_not_told(
    tiny_bundle: Any, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(tiny_bundle().path, tmp_path / "copy"))
    genai = (path / "genai_config.json").read_text()
    (path / "genai_config.json").write_text(genai.replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    reseal(path)
    _text(path)
    with pytest.raises(BundleError, match=r"num_hidden_layers is 3 and must be 2; correct it, or export"):
        _text(path, "--clients")


@pytest.mark.parametrize("content", ["{", "[1", "[" * 100_000, "\xff"])
def test_a_tokenizer_that_is_no_json_is_one_sentence(tiny_bundle: Any, tmp_path: Path, content: str) -> None:
    path = Path(shutil.copytree(tiny_bundle().path, tmp_path / "copy"))
    (path / "tokenizer.json").write_text(content, encoding="latin-1")
    reseal(path)
    result = CliRunner().invoke(command, [str(path), "--clients"])
    assert isinstance(result.exception, BundleError)
    assert re.search(
        r"cannot be used: \S+tokenizer\.json (is not UTF-8 JSON|has)", said := str(result.exception)
    )
    assert said.count("export") == 1


def test_quality_on_no_text_is_told_as_such(tiny_bundle: Any) -> None:
    sizes = {"n_embd": 32, "n_head": 2, "head_size": 16}
    result = CliRunner().invoke(command, [str(tiny_bundle(config=sizes, precision="int8").path)])
    assert result.exit_code == 0
    assert " tokens of random ids\n" in result.output
