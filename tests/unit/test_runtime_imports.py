"""The runtime in processes of its own: without torch and onnx, and without a home folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BLOCKED = ("torch", "onnx", "onnx_ir", "onnxscript", "safetensors", "scipy")
PREAMBLE = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)
sys.meta_path.insert(0, Blocker())
"""
GENERATE = """
from gpt_onnx.runtime import OnnxGPT, Sampling
engine = OnnxGPT.load(sys.argv[1], threads=1)
print(engine.generate([[1, 2, 3], [4]], 8, Sampling(temperature=0.0)))
"""


def run(code: str, *arguments: object, cwd: str | Path | None = None, **environment: str) -> Any:
    return subprocess.run(
        [sys.executable, "-c", PREAMBLE + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
        env={**os.environ, **environment},
        check=False,
    )


def test_the_runtime_generates_where_torch_and_onnx_cannot_be_imported(tiny_bundle: Any) -> None:
    code = GENERATE + f"assert not set({BLOCKED!r}) & set(sys.modules)\n"
    done = run(code, tiny_bundle().path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("finish_reason='length'") == 2


def test_a_bundle_is_verified_where_torch_and_onnx_cannot_be_imported(tiny_bundle: Any) -> None:
    code = "from gpt_onnx.runtime.verify import verify_bundle\nprint(verify_bundle(sys.argv[1]).summary())"
    done = run(code, tiny_bundle(check="quick").path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "greedy tokens agree with PyTorch on cpu" in done.stdout


def test_importing_the_runtime_imports_neither_onnxruntime_nor_numpy() -> None:
    done = run("import gpt_onnx.runtime\nprint({'onnxruntime', 'numpy', 'tokenizers'} & set(sys.modules))")
    assert (done.returncode, done.stderr, done.stdout.strip()) == (0, "", "set()")


def test_the_folder_itself_cannot_be_imported_as_a_second_copy() -> None:
    root = Path(__file__).resolve().parents[2]
    done = run("import runtime", cwd=root)
    assert done.returncode == 1
    assert "import gpt_onnx.runtime, not the folder 'runtime'" in done.stderr


def test_nothing_is_written_to_the_home_folder_or_the_current_one(tiny_bundle: Any, tmp_path: Path) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    done = run(
        GENERATE, tiny_bundle().path, cwd=here, HOME=str(home), XDG_CACHE_HOME=str(home), TMPDIR=str(home)
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [*home.iterdir(), *here.iterdir()] == []


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder in which even root cannot write")
def test_without_a_writable_folder_it_runs_and_is_silent(tiny_bundle: Any) -> None:
    done = run(GENERATE, tiny_bundle().path, cwd="/proc", HOME="/proc/none", TMPDIR="/proc/none")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("finish_reason='length'") == 2
