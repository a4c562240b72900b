from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gpt_onnx.runtime.bench
from gpt_onnx.errors import CheckpointError, GptOnnxError
from gpt_onnx.runtime.bench.entrant import Program
from gpt_onnx.runtime.bench.worker import Worker

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
FAKE = """
import os, sys
from gpt_onnx.errors import CheckpointError
from gpt_onnx.runtime.bench.serve import serve

class Fake:
    facts = {"device": "cpu"}
    def start(self, rows, capacity):
        print("noise on stdout")
        return [row[-1] for row in rows]
    def step(self, tokens):
        if tokens[0] == 13:
            print("out of luck", file=sys.stderr, flush=True)
            os._exit(7)
        if tokens[0] == 12:
            raise ValueError("twelve")
        return [token + 1 for token in tokens]
    def scores(self):
        import numpy
        return numpy.eye(4, dtype=numpy.float32)[:1]

def make(order):
    if order["source"] == "missing":
        raise CheckpointError("missing does not exist.")
    return Fake()

def main():
    serve(make)
"""
LOAD = {"do": "load", "source": "fake", "device": "cpu", "threads": 1}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    (tmp_path / "fake_contender.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Program(module="fake_contender")


def state_of(pid: int) -> str:
    """The state of a process: R, S, T (stopped); empty where it is gone or a zombie."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
    return "" if letter in "ZX" else letter


def wait_for(pid: int, state: str) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if state_of(pid) == state:
            return True
        time.sleep(0.01)
    return False


def test_a_worker_loads_and_measures_whatever_it_prints(fake: Program) -> None:
    with Worker(fake) as worker:
        loaded = worker.ask(LOAD)
        burst = worker.ask({"do": "burst", "rows": [[1, 2]], "new_tokens": 4})
        answer = worker.ask({"do": "answer", "rows": [[1, 2]], "new_tokens": 3})
        assert worker.ask({"do": "memory"}).keys() == {"peak_resident_bytes"}
        assert worker.ask({"do": "facts"}) == {"device": "cpu"}
    assert loaded["load_ms"] >= 0
    assert len(burst["step_ms"]) == 3
    assert answer["tokens"] == [[2], [3], [4]]


@LINUX
def test_a_worker_is_stopped_between_its_turns_and_gone_after(fake: Program) -> None:
    with Worker(fake) as worker:
        worker.ask(LOAD)
        assert wait_for(worker.pid, "T")
        worker.ask({"do": "memory"})
        assert wait_for(worker.pid, "T")
    assert state_of(worker.pid) == ""


def test_an_error_arrives_as_the_class_that_was_raised(fake: Program) -> None:
    with Worker(fake) as worker, pytest.raises(CheckpointError, match=r"^missing does not exist\.$"):
        worker.ask(LOAD | {"source": "missing"})


def test_an_error_of_a_library_is_named_and_the_worker_goes_on(fake: Program) -> None:
    with Worker(fake) as worker:
        worker.ask(LOAD)
        with pytest.raises(GptOnnxError, match="ValueError: twelve"):
            worker.ask({"do": "burst", "rows": [[12]], "new_tokens": 2})
        assert "step_ms" in worker.ask({"do": "burst", "rows": [[1]], "new_tokens": 2})


def test_a_worker_that_dies_leaves_its_last_words(fake: Program) -> None:
    with Worker(fake) as worker:
        worker.ask(LOAD)
        with pytest.raises(GptOnnxError, match=r"exit code 7 .*: out of luck$"):
            worker.ask({"do": "burst", "rows": [[13]], "new_tokens": 2})


def test_an_exception_kills_the_worker_at_once(fake: Program) -> None:
    worker = Worker(fake)
    worker.ask(LOAD)
    worker.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert worker._process.returncode == -signal.SIGKILL


@LINUX
def test_a_stopped_worker_dies_with_the_process_that_measures(fake: Program) -> None:
    program = (
        "import sys\nfrom gpt_onnx.runtime.bench.entrant import Program\n"
        "from gpt_onnx.runtime.bench.worker import Worker\n"
        f"worker = Worker({fake!r})\nworker.ask({LOAD!r})\nprint(worker.pid, flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert wait_for(pid, "T")
        parent.send_signal(signal.SIGKILL)
    assert wait_for(pid, "")


def test_measuring_imports_neither_torch_nor_onnx_nor_onnxruntime() -> None:
    program = (
        "import sys, gpt_onnx.runtime.bench, gpt_onnx.runtime.bench.serve\n"
        "assert not {'torch', 'onnx', 'onnxruntime'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_package_offers_these_names() -> None:
    assert gpt_onnx.runtime.bench.__all__ == [
        "BenchPlan",
        "BenchReport",
        "ContenderReport",
        "Entrant",
        "Program",
        "PromptReport",
        "bench",
        "read_peers",
    ]
