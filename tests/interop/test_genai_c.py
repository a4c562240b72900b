"""The C program of docs/clients.md, compiled and run against the library of onnxruntime-genai's wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.clients import GENAI
from tests.interop._known import PROMPTS
from tests.interop._running import environment_of
from tests.interop._snippets import snippets

HEADER = Path(__file__).parent / "genai_c.h"


def _folder_of(python: Path, package: str) -> Path:
    found = subprocess.run(
        [
            python,
            "-c",
            f"import importlib.util as u; print(u.find_spec({package!r}).submodule_search_locations[0])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(found.stdout.strip())


def _linked_to(library: Path, folder: Path) -> None:
    """Give the onnxruntime of the wheel the name that the library looks for."""
    for name in (library.name, "libonnxruntime.so", "libonnxruntime.so.1"):
        (folder / name).symlink_to(library)


def test_the_c_program_of_the_page_writes_the_same_text(bundles: Any, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    python, known = environment_of(GENAI, GENAI.newest), bundles("sinusoidal")
    genai, capi = _folder_of(python, "onnxruntime_genai"), _folder_of(python, "onnxruntime") / "capi"
    _linked_to(next(capi.glob("libonnxruntime.so.*")), tmp_path)
    shutil.copy(HEADER, tmp_path / "ort_genai_c.h")
    (tmp_path / "program.cpp").write_text(snippets()["genai_c"], encoding="utf-8")
    (tmp_path / "my-gpt").symlink_to(known.path)
    build = ["g++", "-std=c++17", "-I.", "program.cpp", "-o", "program", f"-L{genai}", "-lonnxruntime-genai"]
    built = subprocess.run(
        [*build, "-Wl,--unresolved-symbols=ignore-in-shared-libs"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert not built.returncode, built.stderr
    paths = {**os.environ, "LD_LIBRARY_PATH": f"{genai}:{tmp_path}"}
    done = subprocess.run(["./program"], cwd=tmp_path, env=paths, capture_output=True, text=True, timeout=600)
    assert done.stdout == f"{PROMPTS[0]}{known.texts[0]}\n", done.stderr
