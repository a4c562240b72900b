"""``gpt-onnx bench`` as a user types it, on a tiny model in every layout."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from gpt_onnx.checkpoint import write_checkpoint
from gpt_onnx.config import GPTConfig
from gpt_onnx.export import export_bundle
from gpt_onnx.model import GPT

CONFIG = GPTConfig(vocab_size=61, context_length=48, n_embd=16, n_layer=2, n_head=2, n_kv_head=1)
LAYOUTS: dict[str, dict[str, Any]] = {
    "gqa": {},
    "decomposed": {"target": "portable"},
    "static": {"seq_len": 32, "batch_size": "dynamic"},
    "static-decomposed": {"target": "portable", "seq_len": 32, "batch_size": "dynamic"},
    "plain": {"kv_cache": False},
}
SHORT = ("-r", "1", "-n", "6", "-t", "1", "--no-bandwidth")


ONE_ROW = """
from gpt_onnx.runtime.bench.serve import serve

class One:
    bursts = 0
    def __init__(self, order):
        pass
    @property
    def facts(self):
        return {"device": "cpu", "details": {"bursts": self.bursts}}
    def generate(self, rows, new_tokens):
        if len(rows) > 1:
            raise ValueError("one row only")
        self.bursts += new_tokens == 1
        return [[60 - rows[0][-1]] * new_tokens]

if __name__ == "__main__":
    serve(One)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpt_onnx", "-q", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint, ``tiny``, and a bundle of it in each layout."""
    folder = tmp_path_factory.mktemp("bench")
    torch.manual_seed(0)
    gpt = GPT(CONFIG).eval()
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.2)
    write_checkpoint(folder / "tiny", CONFIG, gpt.state_dict())
    for name, options in LAYOUTS.items():
        export_bundle(folder / "tiny", folder / name, check="none", **options)
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> dict[str, Any]:
    """What ``--json`` says of all layouts beside eager PyTorch."""
    bundles = [str(folder / name) for name in LAYOUTS]
    result = run(*bundles, "--against", str(folder / "tiny"), "--prompt-tokens", "5,90", "--json", *SHORT)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    loaded: dict[str, Any] = json.loads(result.stdout)
    return loaded


def test_every_layout_runs_and_chooses_the_tokens_of_eager_pytorch(report: dict[str, Any]) -> None:
    names = [contender["name"] for contender in report["contenders"]]
    assert names == [*LAYOUTS, "eager PyTorch"]
    for contender in report["contenders"][:-1]:
        for prompt in contender["prompts"]:
            assert prompt["versus"]["tokens"]["verdict"] in ("same", "same until a near tie")


def test_the_report_has_times_memory_and_ratios(report: dict[str, Any]) -> None:
    for contender in report["contenders"]:
        assert contender["start_ms"]["median"] > contender["load_ms"]["median"] > 0
        assert contender["peak_resident_bytes"] >= contender["resident_bytes"] > 10 * 2**20
        for prompt in contender["prompts"]:
            assert prompt["ttft_ms"]["count"] == 1
            assert prompt["step_ms"]["count"] == 5
            assert prompt["step_ms"]["p90"] >= prompt["step_ms"]["median"] > 0
            assert prompt["decode_tokens_per_s"] == pytest.approx(1e3 / prompt["step_ms"]["median"])
            assert (prompt["versus"] is None) == (contender["kind"] == "eager")
    eager, gqa = report["contenders"][-1], report["contenders"][0]
    ratio = eager["prompts"][0]["step_ms"]["median"] / gqa["prompts"][0]["step_ms"]["median"]
    assert gqa["prompts"][0]["versus"]["decode"]["ratio"] == pytest.approx(ratio)


def test_the_report_names_the_machine_and_the_versions(report: dict[str, Any]) -> None:
    environment = report["environment"]
    assert environment["versions"].keys() >= {"gpt-onnx", "onnxruntime", "torch", "numpy"}
    assert environment["cpu"]
    assert environment["threads"] == report["plan"]["threads"] == 1


def test_prompts_that_do_not_fit_are_cut_for_all_and_it_is_said(report: dict[str, Any]) -> None:
    assert [[prompt["prompt_tokens"] for prompt in c["prompts"]] for c in report["contenders"]] == [
        [5, 27]
    ] * 6
    assert "90 tokens were cut to 27" in report["notes"][-1]


def test_the_table_needs_no_source(folder: Path) -> None:
    result = run(str(folder / "gqa"), "--prompt-tokens", "4", "--batch-size", "2", *SHORT)
    assert result.returncode == 0, result.stderr
    assert "tokens/s" in result.stdout
    assert "peak MB" in result.stdout
    assert "onnxruntime" in result.stdout
    assert "torch" not in result.stdout


def test_numbers_of_sequences_and_peers_take_turns_and_what_a_peer_cannot_is_said(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "one.py").write_text(ONE_ROW)
    (tmp_path / "peers.toml").write_text('[one]\nscript = "one.py"\n[broken]\nmodule = "no_such_module"\n')
    result = run(
        *(
            str(folder / "gqa"),
            "--peers",
            str(tmp_path / "peers.toml"),
            "--baseline",
            "gqa",
            "--json",
            *SHORT,
        ),
        *("--prompt-tokens", "4,9", "--batch-size", "1,2", "--plot", str(tmp_path / "out.svg")),
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    gqa, one = report["contenders"]
    measured = [(prompt["batch_size"], prompt["prompt_tokens"]) for prompt in gqa["prompts"]]
    assert measured == [(1, 4), (1, 9), (2, 4), (2, 9)]
    assert [prompt["batch_size"] for prompt in one["prompts"]] == [1, 1]
    assert one["prompts"][0]["versus"]["tokens"]["verdict"] == "different"
    assert one["details"]["bursts"] == 2
    assert report["failures"].keys() == {
        "broken",
        "one, 2 sequences of 4 tokens",
        "one, 2 sequences of 9 tokens",
    }
    assert "no_such_module" in report["failures"]["broken"]
    assert b"</svg>" in (tmp_path / "out.svg").read_bytes()


def test_the_memory_is_measured_and_bundles_have_a_share_of_it(folder: Path) -> None:
    result = run(
        *(str(folder / "gqa"), str(folder / "plain"), "--prompt-tokens", "4", "--json", *SHORT, "--bandwidth")
    )
    report = json.loads(result.stdout)
    assert report["memory"][-1]["array_bytes"] > 2**20
    assert all(speed["gb_per_s"] > 0 for speed in report["memory"])
    gqa, plain = (contender["prompts"][0] for contender in report["contenders"])
    traffic, seconds = gqa["traffic"], gqa["step_ms"]["median"] / 1e3
    assert traffic["gb_per_s"] * 1e9 * seconds == pytest.approx(traffic["step_bytes"])
    assert traffic["share"] > 0
    assert plain["traffic"] is None


def test_a_module_is_a_source_too(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom gpt_onnx.checkpoint import load_model, read_checkpoint\n"
        "class Mine(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        f"        self.gpt = load_model(read_checkpoint({str(folder / 'tiny')!r}))\n"
        "    def forward(self, ids):\n        return {'logits': self.gpt(ids)[0]}\n"
    )
    source = f"{tmp_path / 'mine.py'}:Mine"
    result = run(str(folder / "plain"), "--against", source, "--prompt-tokens", "4", "--json", *SHORT)
    assert result.returncode == 0, result.stderr
    plain, eager = json.loads(result.stdout)["contenders"]
    assert plain["prompts"][0]["versus"]["tokens"]["verdict"] == "same"
    assert eager["details"]["cache"] == "none"
    assert "computes the whole sequence for each token" in json.loads(result.stdout)["notes"][-1]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{folder}/missing"], 1, "missing"),
        (["{folder}/gqa", "--against", "{folder}/nowhere"], 1, "nowhere does not exist"),
        (["{folder}/static", "-n", "40"], 1, "ask for at most 32 with --new-tokens"),
        (["{folder}/gqa", "--provider", "cuda"], 1, "cuda"),
        (["{folder}/gqa", "--prompt-tokens", "5,x"], 2, "not a list of positive integers"),
        (["{folder}/gqa", "-n", "1"], 2, "--new-tokens"),
        (["{folder}/gqa", "--batch-size", "0"], 2, "not a list of positive integers"),
        (["{folder}/gqa", "--compile"], 2, "--compile is for the SOURCE of --against"),
        (["{folder}/gqa", "--plot", "out.txt"], 2, "let it end in .svg, .png, .pdf"),
        (["{folder}/gqa", "--peers", "{folder}/none.toml"], 1, "none.toml cannot be read"),
        (["{folder}/gqa", "--baseline", "llama"], 1, "takes no part; choose one of gqa"),
        (["{folder}/gqa", "{folder}/gqa"], 1, "2 contenders are called"),
        ([], 2, "BUNDLE"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    folder: Path, arguments: list[str], code: int, message: str
) -> None:
    result = run(*[argument.format(folder=folder) for argument in arguments])
    assert result.returncode == code, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def _gone(pid: str, seconds: float) -> bool:
    """Whether a process ends in time: one that was just started has to import what it ends by."""
    deadline = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_ends_all_processes_at_once(folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "gpt_onnx",
        "bench",
        str(folder / "gqa"),
        str(folder / "plain"),
        "-r",
        "9999",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        deadline = time.monotonic() + 60
        while len(workers := children.read_text().split()) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert len(workers) == 2
    assert [pid for pid in workers if not _gone(pid, 20)] == []
