"""``publishing`` leaves the old bundle or the new one, whole, and nothing beside it."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gpt_onnx.bundle._publish as publication
from gpt_onnx.bundle import check_graph, decode_manifest, open_bundle, publishing, seal
from gpt_onnx.errors import BundleError

BundleMaker = Callable[..., Path]
Publish = Callable[..., None]


def _name_of(path: Path) -> str:
    return open_bundle(path).manifest.name


def _hidden(path: Path) -> list[str]:
    return sorted(name for name in os.listdir(path.parent) if name != path.name)


def test_a_bundle_is_published_whole(publish: Publish, out: Path) -> None:
    publish(out)
    check_graph(open_bundle(out))
    assert _hidden(out) == []


@pytest.mark.parametrize("inner", ["inner", "deep/inner", "onnx/inner"])
def test_nothing_is_published_inside_a_bundle(publish: Publish, out: Path, inner: str) -> None:
    publish(out)
    with pytest.raises(BundleError, match=r"is inside the bundle .*, which may hold nothing else"):
        publish(out / inner)
    check_graph(open_bundle(out))


@pytest.mark.usefixtures("way")
def test_overwriting_replaces_the_old_bundle_whole(publish: Publish, out: Path) -> None:
    publish(out, "old")
    shutil.copy(out / "config.json", out / "extra.json")
    seal(out, decode_manifest((out / "manifest.json").read_bytes()))
    publish(out, "new", overwrite=True)
    assert _name_of(out) == "new"
    assert "extra.json" not in os.listdir(out)
    assert _hidden(out) == []


@pytest.mark.usefixtures("way")
def test_who_holds_the_old_bundle_keeps_it(publish: Publish, out: Path) -> None:
    publish(out, "old")
    before = (out / "onnx/model.onnx_data").read_bytes()
    with open(out / "onnx/model.onnx_data", "rb") as held:
        publish(out, "new", overwrite=True)
        assert held.read() == before


def test_an_existing_bundle_needs_overwrite(publish: Publish, out: Path) -> None:
    publish(out, "old")
    with pytest.raises(
        BundleError, match="already there; choose another name, or replace it with --overwrite"
    ):
        publish(out, "new")
    assert _name_of(out) == "old"


def test_an_empty_folder_needs_overwrite(publish: Publish, out: Path) -> None:
    out.mkdir(parents=True)
    with pytest.raises(BundleError, match="--overwrite"):
        publish(out)
    publish(out, overwrite=True)
    assert _name_of(out) == "toy"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_is_never_replaced(publish: Publish, out: Path, overwrite: bool) -> None:
    out.parent.mkdir()
    out.write_text("mine")
    with pytest.raises(BundleError, match="is a file"):
        publish(out, overwrite=overwrite)
    assert out.read_text() == "mine"


FOREIGN = {
    "no manifest": {"thesis.txt": "years of work"},
    "an extension's manifest": {"manifest.json": '{"manifest_version": 3, "files": {}}', "code.js": ""},
    "an unreadable manifest": {"manifest.json": "{", "x": ""},
    "a list": {"manifest.json": "[]"},
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_folder_is_never_overwritten(publish: Publish, out: Path, kind: str) -> None:
    out.mkdir(parents=True)
    for name, text in FOREIGN[kind].items():
        (out / name).write_text(text)
    with pytest.raises(BundleError, match="no bundle, and is not overwritten"):
        publish(out, overwrite=True)
    assert {path.name: path.read_text() for path in out.iterdir()} == FOREIGN[kind]


@pytest.mark.parametrize("name", ["notes.txt", "onnx/notes.txt", ".git"])
def test_a_bundle_with_foreign_files_is_not_overwritten(publish: Publish, out: Path, name: str) -> None:
    publish(out)
    (out / name).write_text("mine")
    with pytest.raises(BundleError, match="no part of the bundle there; move it away first"):
        publish(out, overwrite=True)
    assert (out / name).read_text() == "mine"


def test_a_damaged_or_newer_bundle_can_be_overwritten(publish: Publish, out: Path) -> None:
    publish(out)
    (out / "config.json").unlink()
    publish(out, "again", overwrite=True)
    text = (out / "manifest.json").read_text()
    (out / "manifest.json").write_text(text.replace('"format_version": 3', '"format_version": 9'))
    publish(out, "once more", overwrite=True)
    assert _name_of(out) == "once more"


@pytest.mark.parametrize("exception", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_failed_block_leaves_everything_as_it_was(
    publish: Publish, out: Path, exception: type[BaseException]
) -> None:
    publish(out, "old")

    def fail() -> None:
        with publishing(out, overwrite=True) as staging:
            (staging / "half").write_text("x")
            raise exception

    with pytest.raises(exception):
        fail()
    assert _name_of(out) == "old"
    assert _hidden(out) == []


def test_missing_folders_are_made_and_removed_again(publish: Publish, tmp_path: Path) -> None:
    out = tmp_path / "a" / "b" / "out"
    with pytest.raises(KeyError), publishing(out) as staging:
        raise KeyError(staging.parent == out.parent)
    assert not (tmp_path / "a").exists()
    publish(out)
    assert _name_of(out) == "toy"


def test_a_second_ctrl_c_waits_until_all_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delete = shutil.rmtree

    def interrupted(*arguments: object, **options: object) -> None:
        signal.raise_signal(signal.SIGINT)
        delete(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt), publishing(tmp_path / "a" / "b" / "out"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_an_unsealed_folder_is_not_published(out: Path) -> None:
    with pytest.raises(BundleError, match=r"no manifest\.json"), publishing(out) as staging:
        (staging / "model.onnx").write_text("x")
    assert not out.parent.exists()


def test_files_follow_the_umask(publish: Publish, out: Path, source: Path) -> None:
    (source / "config.json").chmod(0o600)
    for mask, file_mode, folder_mode in ((0o022, 0o644, 0o755), (0o077, 0o600, 0o700)):
        previous = os.umask(mask)
        try:
            publish(out, overwrite=True)
        finally:
            os.umask(previous)
        modes = {stat.S_IMODE(path.stat().st_mode) for path in out.rglob("*") if path.is_file()}
        assert modes == {file_mode}
        assert stat.S_IMODE(out.stat().st_mode) == folder_mode


def test_a_link_keeps_pointing_to_the_replaced_bundle(publish: Publish, out: Path, tmp_path: Path) -> None:
    publish(out, "old")
    link = tmp_path / "current"
    link.symlink_to(out)
    publish(link, "new", overwrite=True)
    assert link.is_symlink()
    assert _name_of(out) == "new"


FULL = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG]


@pytest.mark.parametrize("code", FULL, ids=[errno.errorcode[code] for code in FULL])
def test_a_disk_fault_in_the_block_is_one_sentence(publish: Publish, out: Path, code: int) -> None:
    publish(out, "old")
    with pytest.raises(BundleError) as caught, publishing(out, overwrite=True):
        raise OSError(code, os.strerror(code))
    assert str(caught.value).startswith(f"{out} cannot be written: ")
    assert _name_of(out) == "old"
    assert _hidden(out) == []


def test_other_faults_of_the_block_pass_through(out: Path) -> None:
    with pytest.raises(FileNotFoundError), publishing(out):
        raise FileNotFoundError(errno.ENOENT, "not ours")


@pytest.mark.parametrize("step", ["_settle", "_move_into_place"])
def test_a_full_disk_while_publishing_is_one_sentence(
    publish: Publish, out: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    publish(out, "old")
    monkeypatch.setattr(publication, step, full)
    with pytest.raises(BundleError, match="the disk is full; free some space"):
        publish(out, "new", overwrite=True)
    assert _name_of(out) == "old"
    assert _hidden(out) == []


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that this process cannot write, even when it is root's."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        os.seteuid(user)
        folder.rmdir()


def test_a_read_only_place_is_one_sentence(read_only: Path) -> None:
    for destination in (read_only / "out", read_only / "a" / "out"):
        with (
            pytest.raises(BundleError, match="cannot be written: Permission denied"),
            publishing(destination),
        ):
            pytest.fail("the block must not begin")


def test_a_file_above_the_destination_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(BundleError, match="cannot be written: Not a directory"),
        publishing(tmp_path / "file" / "out"),
    ):
        pytest.fail("the block must not begin")


def test_an_empty_name_is_no_destination() -> None:
    with pytest.raises(BundleError, match="the destination is an empty name"), publishing(""):
        pass


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_link_to_itself_is_told(publish: Publish, tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(BundleError, match="loop is a link that leads to itself; choose another name"):
        publish(tmp_path / "loop", overwrite=overwrite)
