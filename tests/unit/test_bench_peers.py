"""Contenders of anybody's: what a file may say, and a program that has numpy and nothing else of ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.errors import GptOnnxError, InputError
from gpt_onnx.runtime.bench import Program, read_peers
from gpt_onnx.runtime.bench.worker import Worker

PEER = """
import sys
for name in ("torch", "onnx", "onnxruntime", "click", "rich", "tokenizers"):
    sys.modules[name] = None  # importing it fails, as in a Python that does not have it
import helper
from gpt_onnx.runtime.bench.serve import serve

class Whole:
    def __init__(self, order):
        self.facts = {"device": "cpu", "details": {**order["options"], "helped": helper.VALUE}}
    def generate(self, rows, new_tokens):
        return [[row[-1]] * (new_tokens - (row[-1] == 9)) for row in rows]

if __name__ == "__main__":
    serve(Whole)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("VALUE = 5\n")
    (tmp_path / "peer.py").write_text(PEER)
    return tmp_path / "peer.py"


def test_a_script_serves_with_numpy_alone_and_a_module_beside_it(script: Path) -> None:
    with Worker(Program(script=str(script))) as worker:
        worker.ask({"do": "load", "source": "", "device": "cpu", "threads": 1, "options": {"form": "q4"}})
        assert worker.ask({"do": "facts"})["details"] == {"form": "q4", "helped": 5}
        answer = worker.ask({"do": "answer", "rows": [[1, 2], [3, 4]], "new_tokens": 3})
        burst = worker.ask({"do": "burst", "rows": [[1, 2]], "new_tokens": 5})
    assert answer == {"tokens": [[2, 4], [2, 4], [2, 4]], "runners_up": [], "gaps": []}
    assert len(burst["step_ms"]) == 1
    assert burst["step_ms"][0] > 0


def test_a_generation_that_ends_early_is_no_measurement(script: Path) -> None:
    with Worker(Program(script=str(script))) as worker:
        worker.ask({"do": "load", "source": "", "device": "cpu", "threads": 1, "options": {}})
        with pytest.raises(InputError, match=r"3 tokens were asked for and \[2\] came"):
            worker.ask({"do": "answer", "rows": [[9]], "new_tokens": 3})


def test_the_environment_of_a_program_is_its_own(tmp_path: Path) -> None:
    script = tmp_path / "told.py"
    script.write_text("import os, sys\nsys.exit(os.environ['COLOUR'])\n")
    worker = Worker(Program(script=str(script), environment={"COLOUR": "green"}))
    with pytest.raises(GptOnnxError, match=r"its last words: green$"):
        worker.ask({"do": "memory"})
    worker.close()


def test_paths_are_relative_to_the_file_and_the_rest_is_handed_on(script: Path) -> None:
    file = script.with_name("peers.toml")
    file.write_text(
        '["a b"]\nscript = "peer.py"\nsource = "w.gguf"\noptions = { n = 3 }\n[c]\nmodule = "m"\n'
    )
    first, second = read_peers(file)
    assert (first.name, first.kind, first.source, first.options) == ("a b", "peer", "w.gguf", {"n": 3})
    assert first.program == Program(script=str(script), python=sys.executable)
    assert second.program.arguments == ("module", "m")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]\n", "exactly one of them"),
        ('[a]\nscript = "peer.py"\nmodule = "m"\n', "exactly one of them"),
        ('[a]\nscript = "none.py"\n', r"none\.py, which is no file"),
        ('[a]\nmodule = "m"\npython = "venv/bin/python"\n', r"python is .*venv/bin/python, which is no file"),
        ('[a]\nmodul = "m"\n', r"a\.modul is 'm'; a contender has python, script"),
        ("[a]\nmodule = 3\n", r"a\.module is 3"),
        ("a = 3\n", "it must be a table"),
        ("[a", "is no TOML"),
    ],
)
def test_a_file_that_is_not_understood_is_refused(script: Path, text: str, message: str) -> None:
    file = script.with_name("peers.toml")
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_peers(file)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"peers\.toml cannot be read"):
        read_peers(tmp_path / "peers.toml")


@pytest.mark.parametrize(
    ("facts", "message"),
    [({}, "tells no device"), ({"device": "cpu", "divice": "cpu"}, "tells unknown divice among its facts")],
)
def test_facts_that_are_not_understood_are_refused(facts: dict[str, Any], message: str) -> None:
    from gpt_onnx.runtime.bench.facts import Facts

    with pytest.raises(InputError, match=message):
        Facts.read(facts, "a peer")
