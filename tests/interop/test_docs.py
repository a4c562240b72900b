"""The programs of docs/clients.md, each run in its client's environment beside a bundle called my-gpt."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.clients import GENAI, ONNXRUNTIME, OPENVINO, OPTIMUM, REFERENCE, Client
from tests.interop._known import PROMPTS
from tests.interop._running import environment_of
from tests.interop._snippets import snippets
from tests.interop.test_docs_javascript import IN_NODE, IN_PAGES

CLIENTS: dict[str, tuple[Client, str]] = {
    "onnxruntime": (ONNXRUNTIME, "cpu"),
    "genai": (GENAI, "cpu"),
    "openvino": (OPENVINO, "cpu"),
    "optimum": (OPTIMUM, "portable"),
}
"""Name of a program to its client and to a target that it runs."""


def _printed(python: Path, program: str, folder: Path, bundle: Path) -> str:
    (folder / "my-gpt").symlink_to(bundle)
    (folder / "program.py").write_text(program, encoding="utf-8")
    done = subprocess.run([python, "program.py"], cwd=folder, capture_output=True, text=True, timeout=600)
    assert not done.returncode, done.stderr
    return done.stdout


def test_every_program_of_the_page_is_run() -> None:
    assert set(snippets()) == {*CLIENTS, "reference", "genai_c", *IN_NODE, *IN_PAGES}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_program_of_the_page_writes_the_same_text(bundles: Any, tmp_path: Path, name: str) -> None:
    client, target = CLIENTS[name]
    known = bundles("sinusoidal", target=target)
    printed = _printed(environment_of(client, client.newest), snippets()[name], tmp_path, known.path)
    assert printed == f"{PROMPTS[0]}{known.texts[0]}\n"


def test_the_reference_evaluators_program_gives_the_best_token(bundles: Any, tmp_path: Path) -> None:
    known = bundles("sinusoidal", target="portable")
    python = environment_of(REFERENCE, REFERENCE.newest)
    printed = _printed(python, snippets()["reference"], tmp_path, known.path)
    assert int(printed) == known.gpt.engine.logits([[5, 6, 7]])[0, -1].argmax()
