"""What the Dockerfile installs is the runtime alone, and its entry point generates.

No engine of containers is needed: the lines of the file are taken at their word.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop._environments import REPOSITORY, install
from tests.interop.conftest import BundleMaker

DOCKERFILE = REPOSITORY / "Dockerfile"


def line(instruction: str) -> str:
    """Return the last line of the file that begins with an instruction, without it."""
    found = re.findall(rf"^{instruction} (.*)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, f"{DOCKERFILE.name} has no {instruction}"
    last: str = found[-1]
    return last


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the build stage installs, in an environment of its own."""
    environment = tmp_path_factory.mktemp("image") / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    command = next(
        words
        for words in map(shlex.split, re.findall(r"^RUN (.*)$", DOCKERFILE.read_text(), re.MULTILINE))
        if words[:2] == ["pip", "install"]
    )
    options = [word for word in command[2:] if not word.startswith("--prefix")]
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "--quiet"]
    install([*pip, "--disable-pip-version-check", *options], "the image's packages", REPOSITORY)
    return environment


def packages(prefix: Path) -> set[str]:
    return {path.name for path in prefix.glob("lib/python*/site-packages/*") if path.suffix != ".dist-info"}


def test_the_image_has_neither_torch_nor_onnx(prefix: Path) -> None:
    found = packages(prefix)
    assert {"gpt_onnx", "onnxruntime", "numpy", "tokenizers"} <= found
    assert not {"torch", "onnx", "onnxscript", "safetensors", "transformers"} & found


def test_the_entry_point_generates_what_the_runtime_does(prefix: Path, bundles: BundleMaker) -> None:
    known = bundles("sinusoidal", "int4")
    (program,) = json.loads(line("ENTRYPOINT"))
    ids = ",".join(map(str, known.prompt_ids[0]))
    options = ["-n", "64", "--temperature", "0", "--ignore-eos", "--speculate", "off", "--json"]
    command = [str(prefix / "bin" / program), "generate", str(known.path), "--prompt-ids", ids, *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=prefix)
    assert done.returncode == 0, done.stderr
    known.check([json.loads(done.stdout)["ids"]])


def test_the_image_is_built_of_files_that_exist() -> None:
    ignored = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    needed = (
        "gpt_onnx",
        "export",
        "runtime",
        "models",
        "pyproject.toml",
        "constraints.txt",
        "README.md",
        "LICENSE",
    )
    for name in needed:
        assert (REPOSITORY / name).exists()
        assert name not in ignored
