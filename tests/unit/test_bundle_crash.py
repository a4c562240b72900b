"""Kill a publication at every step: afterwards the destination is the old or the new bundle, whole.

Twice: at each of Python's audit events, which needs nothing, and at each system call, with strace where
there is one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count, takewhile
from pathlib import Path

import pytest

from gpt_onnx.bundle import check_graph, open_bundle

BundleMaker = Callable[..., Path]

PUBLISH = """
import shutil, sys
from pathlib import Path
import gpt_onnx.bundle._publish as publication
from gpt_onnx.bundle import decode_manifest, publishing, seal
from gpt_onnx.errors import BundleError

source, out, way, *_ = sys.argv[1:]
if way == "renames":
    publication.exchange = lambda first, second: False

def publish():
    with publishing(out, overwrite=True) as staging:
        (staging / "onnx").mkdir()
        for path in Path(source).rglob("*.*"):  # not copytree: it raises an error of its own
            shutil.copyfile(path, staging / path.relative_to(source))
        seal(staging, decode_manifest((staging / "manifest.json").read_bytes()).replace(name="new"))
"""
RUN = """
try:
    publish()
except BundleError as exc:
    raise SystemExit(str(exc))
"""
KILL_AT_EVERY_EVENT = """
import os
WATCHED = ("open", "os.", "shutil.", "ctypes.", "fcntl.")
old = sys.argv[4]

def killed_at(number):
    seen = 0
    def hook(event, arguments):
        nonlocal seen
        seen += event.startswith(WATCHED)
        if seen == number:
            os._exit(9)
    pid = os.fork()
    if pid == 0:
        sys.addaudithook(hook)
        publish()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9

number = 1
while True:
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(old, out)
    if not killed_at(number):
        break
    from gpt_onnx.bundle import open_bundle
    print(number, open_bundle(out).manifest.name, flush=True)
    number += 1
"""


@pytest.fixture
def bundles(make_bundle: BundleMaker, tmp_path: Path) -> tuple[Path, Path, Path]:
    """A new bundle, an old one, and a destination alone in its folder."""
    (tmp_path / "published").mkdir()
    return make_bundle("new"), make_bundle("old"), tmp_path / "published" / "out"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["exchange", "renames"])
def test_a_kill_at_any_event_leaves_a_whole_bundle(bundles: tuple[Path, Path, Path], way: str) -> None:
    new, old, out = bundles
    command = [sys.executable, "-B", "-c", PUBLISH + KILL_AT_EVERY_EVENT, str(new), str(out), way, str(old)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    names = [line.split()[1] for line in done.stdout.splitlines()]
    assert len(names) > 50
    assert names[0] == "toy"
    assert names[-1] == "new"
    assert names == sorted(names, reverse=True)  # once the new one is in place it stays
    assert [path.name for path in out.parent.iterdir()] == ["out"]


SYSTEM_CALLS = {
    **dict.fromkeys(
        ("write", "pwrite64", "copy_file_range", "sendfile", "mkdir", "mkdirat", "flock"), "ENOSPC"
    ),
    **dict.fromkeys(("fsync", "fdatasync", "rename", "renameat", "renameat2", "chmod", "fchmod"), "EIO"),
    **dict.fromkeys(("fchmodat", "unlink", "unlinkat", "rmdir"), "EIO"),
}
"""What a publication asks of the system, each with an error that it may get for an answer."""
STRACE = shutil.which("strace")


def _strace_works() -> bool:
    if STRACE is None:
        return False
    return (
        subprocess.run([STRACE, "-o", "/dev/null", "true"], capture_output=True, check=False).returncode == 0
    )


def _strace(call: str, fault: str, *arguments: Path | str) -> subprocess.CompletedProcess[str]:
    assert STRACE is not None
    traced = [STRACE, "-f", "-qq", "-o", "/dev/null", "-e", f"inject=?{call}:{fault}"]
    command = [*traced, sys.executable, "-B", "-c", PUBLISH + RUN, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in done.stderr, (call, fault, done.stderr)
    return done


def _is_killed(call: str, number: int, *arguments: Path | str) -> bool:
    """Kill at the ``number``-th system call of a kind; False if there were fewer."""
    code = _strace(call, f"signal=KILL:when={number}", *arguments).returncode
    check_graph(open_bundle(arguments[1]))
    return code != 0


def _kills(call: str, *arguments: Path | str) -> Iterator[int]:
    """Kill at each system call of a kind; yield their numbers."""
    return takewhile(lambda number: _is_killed(call, number, *arguments), count(1))


@pytest.mark.slow
@pytest.mark.skipif(not _strace_works(), reason="strace is not there or may not trace")
@pytest.mark.parametrize("way", ["exchange", "renames"])
def test_a_fault_at_any_system_call_leaves_a_whole_bundle(bundles: tuple[Path, Path, Path], way: str) -> None:
    new, old, out = bundles
    shutil.copytree(old, out)
    steps = [(call, number) for call in SYSTEM_CALLS for number in _kills(call, new, out, way)]
    assert len(steps) > 20
    for call, number in steps:
        _strace(call, f"error={SYSTEM_CALLS[call]}:when={number}", new, out, way)
        check_graph(open_bundle(out))
    assert _strace("write", "signal=KILL:when=10000", new, out, way).returncode == 0
    assert [path.name for path in out.parent.iterdir()] == ["out"]
