"""What ``verify --report`` and ``bench --plot`` write: never inside a bundle, over nothing but its like."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.cli import main
from gpt_onnx.cli._bench_plot import KINDS
from gpt_onnx.cli._html_report import REPORT, START
from gpt_onnx.cli._result_file import Kind, check_result_file, write_result_file
from gpt_onnx.errors import BundleError, InputError

LIKE: dict[str, tuple[Kind, bytes]] = {
    "a.html": (REPORT, START.encode() + b"<title>of another day</title>"),
    "a.svg": (KINDS[".svg"], b'<?xml version="1.0"?>\n<!-- by hand -->\n<svg xmlns="">'),
    "b.svg": (KINDS[".svg"], b'<svg xmlns="">'),
    "a.png": (KINDS[".png"], b"\x89PNG\r\n\x1a\n"),
    "a.pdf": (KINDS[".pdf"], b"%PDF-1.4"),
}
FOREIGN: dict[str, tuple[Kind, bytes, str]] = {
    "thesis.html": (
        REPORT,
        b"<!doctype html>\n<html>",
        r"begins with b'<!doctype html>\\n', and only a report",
    ),
    "weights.html": (REPORT, b"\x00" * 99, "only a report of gpt-onnx verify is replaced"),
    "empty.html": (REPORT, b"", "is empty"),
    "feed.svg": (KINDS[".svg"], b"<?xml version='1.0'?><rss>", "only an SVG picture is replaced"),
    "page.svg": (KINDS[".svg"], b"<!doctype html><svg >", "only an SVG picture is replaced"),
    "picture.png": (KINDS[".png"], b"GIF89a", "only a PNG picture is replaced"),
    "text.pdf": (KINDS[".pdf"], b"%!PS", "only a PDF file is replaced; move it away, or name another file"),
}
NO_FILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "folder": (Path.mkdir, "is a folder; name a file"),
    "pipe": (os.mkfifo, "is no regular file; name a file"),
    "link to itself": (
        lambda path: path.symlink_to(path),
        "is a link that leads to itself; name another file",
    ),
}


def new(file: Path) -> None:
    file.write_bytes(b"new")


@pytest.mark.parametrize("name", LIKE)
def test_a_file_of_the_same_kind_is_replaced(tmp_path: Path, name: str) -> None:
    kind, old = LIKE[name]
    (tmp_path / name).write_bytes(old)
    write_result_file(tmp_path / name, kind, new)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: b"new"}


@pytest.mark.parametrize("name", FOREIGN)
def test_any_other_file_stays(tmp_path: Path, name: str) -> None:
    kind, old, told = FOREIGN[name]
    (tmp_path / name).write_bytes(old)
    with pytest.raises(InputError, match=told):
        write_result_file(tmp_path / name, kind, new)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: old}


@pytest.mark.parametrize("name", NO_FILE)
def test_what_is_no_file_is_told(tmp_path: Path, name: str) -> None:
    make, told = NO_FILE[name]
    make(tmp_path / "out")
    with pytest.raises(InputError, match=told):
        check_result_file(tmp_path / "out", REPORT)


def test_a_link_stays_and_what_it_stands_for_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_result_file(tmp_path / "link", REPORT, new)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(START)

    def fail(file: Path) -> None:
        new(file)
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="could not be written: No space left on device"):
        write_result_file(tmp_path / "a.html", REPORT, fail)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.html": START}


@pytest.mark.parametrize("inner", ["report.html", "config.json", "onnx/model.onnx"])
def test_nothing_is_written_inside_a_bundle(bigram: Path, tmp_path: Path, inner: str) -> None:
    (tmp_path / "link").symlink_to(bigram)
    for bundle in (bigram, tmp_path / "link"):
        with pytest.raises(BundleError, match=r"is inside the bundle .*, which may hold nothing else"):
            check_result_file(bundle / inner, REPORT)


COMMANDS = {"verify": ("--report", "manifest.json"), "bench": ("--plot", "out.svg")}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_refuses_before_it_works(
    bigram: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    option, inner = COMMANDS[command]
    before = (bigram / "manifest.json").read_bytes()
    with pytest.raises(SystemExit) as ended:
        main([command, str(bigram / "absent"), option, str(bigram / inner)])
    assert ended.value.code == 1
    err = capsys.readouterr().err
    assert f"{inner} is inside the bundle {bigram}" in err
    assert err.count("\n") == 1
    assert (bigram / "manifest.json").read_bytes() == before


def test_a_report_is_written_and_written_again(
    tiny_bundle: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main(["verify", str(tiny_bundle().path), "--files-only", "--report", str(page)])
        assert ended.value.code == 0, capsys.readouterr().err
        assert page.read_text().startswith(START + "<meta name=")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
