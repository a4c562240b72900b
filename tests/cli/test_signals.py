"""A command that is ended by a signal leaves nothing half-made, and says which signal it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are watched in /proc")

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
LINE = "Error: interrupted{}; nothing was left half-written.\n"

HELD_AT = """
import os, sys, time
import gpt_onnx.web
gpt_onnx.web.vendor = lambda cache, assets: assets  # whatever libraries there are
import {module} as module
real, marker = module.{name}, sys.argv.pop(1)
def held(*args, **options):
    open(marker, "w").close()
    time.sleep({seconds})
    return real(*args, **options)
module.{name} = held
from gpt_onnx.__main__ import program
program()
"""
"""The command line, which makes a file and waits where a function of it is called."""


class Held:
    """A command that has come to a function, and waits there."""

    def __init__(self, place: str, marker: Path, arguments: Sequence[object], seconds: float = 60) -> None:
        module, _, name = place.rpartition(".")
        program = HELD_AT.format(module=module, name=name, seconds=seconds)
        command = [sys.executable, "-c", program, str(marker), "-q", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        deadline = time.monotonic() + 120
        while not marker.exists() and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        marker.unlink()

    def end(self, *signals: int) -> tuple[int, str, str]:
        """Send signals and return the exit code and what was said, without click's empty line."""
        for number in signals:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err.lstrip("\n")


Start = Callable[..., Held]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    return lambda place, *arguments, **options: Held(place, tmp_path / "held", arguments, **options)


def said(number: int) -> str:
    return LINE.format("" if number == signal.SIGINT else f" by {signal.Signals(number).name}")


@pytest.mark.parametrize("number", SIGNALS)
def test_an_export_that_is_ended_leaves_nothing(
    start: Start, checkpoint: Path, tmp_path: Path, number: int
) -> None:
    held = start("gpt_onnx.export.build.bind", "export", checkpoint, "-o", tmp_path / "new" / "b")
    assert [path.suffix for path in (tmp_path / "new").iterdir()] == [".partial"]
    assert held.end(number) == (128 + number, "", said(number))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["gpt_onnx.bundle._publish.make_staging", "shutil.rmtree"])
@pytest.mark.parametrize("number", SIGNALS)
def test_making_and_deleting_the_staging_folder_wait_for_no_signal(
    start: Start, checkpoint: Path, tmp_path: Path, place: str, number: int
) -> None:
    """Twice, and then another: who is impatient leaves nothing either."""
    held = start(place, "export", checkpoint, "-o", tmp_path / "b", "--check", "none", seconds=1)
    code, _, err = held.end(number, number, signal.SIGTERM)
    assert (code, err) == (128 + number, said(number))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_a_killed_export_left_goes_with_the_next_one(
    start: Start, checkpoint: Path, tmp_path: Path
) -> None:
    command = ("export", checkpoint, "-o", tmp_path / "b", "--check", "none")
    assert start("gpt_onnx.export.build.bind", *command).end(signal.SIGKILL)[0] == -signal.SIGKILL
    assert [path.suffix for path in tmp_path.iterdir()] == [".partial"]
    subprocess.run([sys.executable, "-m", "gpt_onnx", *map(str, command)], check=True, capture_output=True)
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_conversion_that_is_ended_leaves_nothing(
    start: Start, checkpoint: Path, tmp_path: Path, number: int
) -> None:
    place = "gpt_onnx.checkpoint.convert.write_entries"
    held = start(place, "convert", checkpoint, "-o", tmp_path / "c")
    assert held.end(number) == (128 + number, "", said(number))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("place", ["_copy_bundle", "_checked_entries"])
def test_a_site_that_is_ended_leaves_nothing(
    start: Start, tmp_path: Path, bigram: Path, place: str, number: int
) -> None:
    (tmp_path / "libraries").mkdir()
    arguments = ("web", bigram, "-o", tmp_path / "site", "--assets", tmp_path / "libraries")
    held = start(f"gpt_onnx.web._build.{place}", *arguments)
    assert held.end(number) == (128 + number, "", said(number))
    assert os.listdir(tmp_path) == ["libraries"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    "place", ["gpt_onnx.train.data.write_tokens", "gpt_onnx.train.loop.set_learning_rate"]
)
def test_training_that_is_ended_before_its_first_saving_leaves_nothing(
    start: Start, tmp_path: Path, place: str, number: int
) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    for index in range(4):
        (texts / f"{index}.txt").write_text("We the people of the United States. " * 40)
    (tmp_path / "gpt.toml").write_text(
        "vocab_size = 300\ncontext_length = 16\nn_embd = 16\nn_layer = 1\nn_head = 2\n"
    )
    held = start(place, "train", texts, "-o", tmp_path / "gpt", "--config", tmp_path / "gpt.toml", "-s", "1")
    assert held.end(number)[::2] == (128 + number, said(number))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpt.toml", "texts"]


def test_a_generation_that_is_ended_keeps_its_text(start: Start, bigram: Path) -> None:
    place = "gpt_onnx.cli._answers._report"
    code, out, err = start(place, "generate", bigram, "-p", "a", "-n", "3", "-s", "1").end(signal.SIGTERM)
    assert (code, out) == (143, "bcd\n")
    assert err == said(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_is_ignored_stays_ignored(
    start: Start, checkpoint: Path, tmp_path: Path, number: int
) -> None:
    before = signal.signal(number, signal.SIG_IGN)  # as under nohup, which children inherit
    try:
        held = start(
            "gpt_onnx.export.build.bind",
            "export",
            checkpoint,
            "-o",
            tmp_path / "b",
            "--check",
            "none",
            seconds=0.5,
        )
        assert held.end(number)[0] == 0
    finally:
        signal.signal(number, before)
    assert os.listdir(tmp_path) == ["b"]
