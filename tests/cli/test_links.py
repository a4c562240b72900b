"""A link that leads to itself, wherever a command takes a path: one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_onnx._paths import real_path
from gpt_onnx.cli import main

COMMANDS = (
    "export self",
    "export self --tokenizer self -o other",
    "export self.py:Net",
    "verify self",
    "verify self --report other.html",
    "inspect self",
    "generate self -p a",
    "generate self -f self",
    "eval self --text self",
    "bench self",
    "web self",
    "web self -o self",
    "train self -o self",
    "convert self -o self",
    "convert self -o other",
)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_link_to_itself_is_one_sentence(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("self", "self.py"):
        (tmp_path / name).symlink_to(name)
    with pytest.raises(SystemExit) as ended:
        main(["-q", *line.split()])
    assert ended.value.code == 1
    err = capsys.readouterr().err
    assert err.startswith("Error: self")
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["self", "self.py"]


def test_a_real_path_has_no_links(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").mkdir()
    (tmp_path / "self").symlink_to("self")
    real = {name: real_path(tmp_path / name).name for name in ("one", "two", "self", "absent")}
    assert real == {"one": "two", "two": "two", "self": "self", "absent": "absent"}
