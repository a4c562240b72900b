"""Publications that meet each other, or what dead ones left beside a destination."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import gpt_onnx.bundle._publish as publication
from gpt_onnx.bundle import open_bundle, publishing
from gpt_onnx.bundle._staging import lock_folder, unlock
from gpt_onnx.errors import BundleError

BundleMaker = Callable[..., Path]
Publish = Callable[..., None]


def _name_of(path: Path) -> str:
    return open_bundle(path).manifest.name


def _hidden(path: Path) -> list[str]:
    return sorted(name for name in os.listdir(path.parent) if name != path.name)


def test_rubbish_of_dead_processes_is_swept(publish: Publish, out: Path) -> None:
    publish(out)
    for name in (".out.0123456789ab.partial", ".out.0123456789ac.old"):
        shutil.copytree(out, out.parent / name)
    (out.parent / ".out.txt.partial").mkdir()
    (out.parent / ".other.0123456789ab.partial").mkdir()
    publish(out, overwrite=True)
    assert _hidden(out) == [".other.0123456789ab.partial", ".out.txt.partial"]


def test_the_staging_of_a_living_process_is_left_alone(publish: Publish, out: Path) -> None:
    with publishing(out) as mine:
        other = out.with_name("other")
        publish(other)
        publish(out, "quicker")
        assert mine.is_dir()
        shutil.copytree(other, mine, dirs_exist_ok=True)
        with pytest.raises(BundleError, match="already there"):
            publish(out)
        shutil.rmtree(out)
    assert _name_of(out) == "toy"


def test_the_slower_of_two_exports_does_not_replace_the_other(
    publish: Publish, out: Path, source: Path
) -> None:
    def slower() -> None:
        with publishing(out) as mine:
            publish(out, "quicker")
            shutil.copytree(source, mine, dirs_exist_ok=True)

    with pytest.raises(BundleError, match="--overwrite"):
        slower()
    assert _name_of(out) == "quicker"
    assert _hidden(out) == []


@pytest.mark.parametrize("has_partial", [True, False])
def test_opening_mends_an_interrupted_pair_of_renames(publish: Publish, out: Path, has_partial: bool) -> None:
    publish(out, "old")
    out.rename(out.parent / ".out.0123456789ab.old")
    if has_partial:
        (out.parent / ".out.0123456789ab.partial").mkdir()
    assert _name_of(out) == "old"
    publish(out, "new", overwrite=True)
    assert _hidden(out) == []


def test_exporting_mends_an_interrupted_pair_of_renames(publish: Publish, out: Path) -> None:
    publish(out, "old")
    out.rename(out.parent / ".out.0123456789ab.old")
    with pytest.raises(BundleError, match="--overwrite"):
        publish(out, "new")
    assert _name_of(out) == "old"


def test_opening_waits_for_a_living_pair_of_renames(
    publish: Publish, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(out, "old")
    old, partial = (out.parent / f".out.0123456789ab.{kind}" for kind in ("old", "partial"))
    shutil.copytree(out, partial)
    out.rename(old)
    lock = lock_folder(partial)

    def finish(seconds: float) -> None:
        partial.rename(out)

    monkeypatch.setattr("gpt_onnx.bundle._staging.time.sleep", finish)
    assert _name_of(out) == "old"
    assert old.is_dir()
    unlock(lock)


def test_a_failed_second_rename_is_undone(
    publish: Publish, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(out, "old")
    monkeypatch.setattr(publication, "exchange", lambda first, second: False)
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.name.endswith(".partial"):
            raise KeyboardInterrupt
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        publish(out, "new", overwrite=True)
    assert _name_of(out) == "old"
    assert _hidden(out) == []


@pytest.mark.usefixtures("way")
def test_a_reader_always_finds_a_whole_bundle(publish: Publish, out: Path) -> None:
    publish(out, "name-0")
    done = threading.Event()

    def republish() -> None:
        try:
            for number in range(1, 13):
                publish(out, f"name-{number}", overwrite=True)
        finally:
            done.set()

    writer = threading.Thread(target=republish)
    writer.start()
    seen = []
    while not done.is_set():
        seen.append(int(_name_of(out).removeprefix("name-")))
    writer.join()
    assert seen == sorted(seen)
    assert _name_of(out) == "name-12"
    assert _hidden(out) == []
