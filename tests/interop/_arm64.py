"""A Debian root of another architecture with the runtime alone, and programs run in it under emulation.

    root = arm64_root()                                     # made once, kept in the cache folder
    root.run("generate", bundle, "-p", "We the people", "-n", "8")

The root is what debootstrap fetches, unpacked by this machine's own tools: nothing in it is configured,
so that no emulated program runs before ours. The kernel starts its programs through qemu-user
(binfmt_misc). Its /proc is the machine's, which ONNX Runtime needs to map weights; /sys is left out, as
ONNX Runtime's reader of processors crashes on that of another architecture. Skipped, with the reason,
where any of it is not to be had.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop._environments import REPOSITORY, STAMP, cache_folder, install, locked

TOOLS = ("debootstrap", "dpkg-deb", "tar", "unshare", "chroot")
EMULATOR = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")
APT = Path("/etc/apt")
PYTHON_VERSIONS = {"bookworm": "3.11", "trixie": "3.13"}
"""Python's version by Debian release."""
PLATFORMS = (
    "manylinux_2_17_aarch64",
    "manylinux2014_aarch64",
    "manylinux_2_27_aarch64",
    "manylinux_2_28_aarch64",
)
SITE = "opt/site"
BUNDLE = "opt/bundle"
SECONDS = 1800  # an emulated program takes fifty times as long
INSIDE = (
    'mount --bind /proc "$0/proc" && mount --bind "$1" "$0/' + BUNDLE + '" && root="$0" && shift'
    ' && exec chroot "$root" /usr/bin/env PYTHONPATH=/' + SITE + " PYTHONDONTWRITEBYTECODE=1"
    ' /usr/bin/python3 "$@"'
)


def _mirror() -> str | None:
    """Return where this machine's own packages come from."""
    for path in (*APT.glob("sources.list.d/*.sources"), APT / "sources.list"):
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if found := re.search(r"^(?:URIs:|deb)\s+(?:\[.*?\]\s*)?(\S+/debian/?)(?=\s|$)", text, re.MULTILINE):
            return found[1]
    return None


def _release() -> str:
    """Return the code name of this machine's Debian; empty for another system."""
    path = Path("/etc/os-release")
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = re.search(r"^VERSION_CODENAME=(\w+)$", text, re.MULTILINE)
    return found[1] if found else ""


def _lacking() -> str | None:
    """Return why there can be no root here."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return (
            f"{', '.join(missing)} not found: Debian's packages debootstrap and qemu-user-static are needed"
        )
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "chroot needs root"
    if not EMULATOR.exists():
        return "the kernel does not start programs of aarch64: Debian's package qemu-user-static is needed"
    if _release() not in PYTHON_VERSIONS:
        return (
            f"the system is {_release() or 'unknown'}, and the root is made on {' or '.join(PYTHON_VERSIONS)}"
        )
    return None if _mirror() else f"{APT} names no Debian mirror"


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that holds a system of another architecture."""

    path: Path

    def python(self, bundle: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run its Python, with a bundle at /opt/bundle."""
        command = ["unshare", "--mount", "sh", "-c", INSIDE, str(self.path), str(bundle), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)

    def run(self, command: str, bundle: Path, *options: str) -> str:
        """Run a command of gpt-onnx on a bundle and return what it prints."""
        done = self.python(bundle, "-m", "gpt_onnx", command, f"/{BUNDLE}", *options)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout


def _unpack(root: Path) -> None:
    """Unpack all that debootstrap fetched, and let /proc be a folder to mount on."""
    for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        with subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE
        ) as contents:
            target = ["tar", "-x", "--keep-directory-symlink", "-C", str(root)]
            subprocess.run(target, stdin=contents.stdout, check=True)
        assert contents.returncode == 0, package
    if (root / "proc").is_symlink():
        (root / "proc").unlink()
    for folder in ("proc", BUNDLE):
        (root / folder).mkdir(parents=True, exist_ok=True)


def _pip(target: Path, *requirements: str) -> None:
    """Install wheels of the other architecture into a folder."""
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    version = ["--python-version", PYTHON_VERSIONS[_release()], "--only-binary", ":all:"]
    install([*command, "--target", str(target), *platforms, *version, *requirements], "the runtime for arm64")


def _own_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    install([*command, "--wheel-dir", str(folder), str(REPOSITORY)], "a wheel of this project")
    return next(folder.glob("*.whl"))


def _make(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    options = ["--arch=arm64", "--foreign", "--variant=minbase", "--include=python3"]
    install(["debootstrap", *options, _release(), str(root), str(_mirror())], "a root of arm64")
    _unpack(root)


def arm64_root() -> Root:
    """Return a root with Python and this project's runtime as it is now."""
    if reason := _lacking():
        pytest.skip(reason)
    folder = cache_folder() / "arm64"
    root, constraints = folder / "root", REPOSITORY / "constraints.txt"
    wanted = constraints.read_text(encoding="utf-8") + _release()
    with locked(folder), tempfile.TemporaryDirectory() as wheels:
        wheel = _own_wheel(Path(wheels))
        if not (folder / STAMP).is_file() or (folder / STAMP).read_text(encoding="utf-8") != wanted:
            _make(root)
            _pip(root / SITE, f"{wheel}[cpu]", "-c", str(constraints))
            (folder / STAMP).write_text(wanted, encoding="utf-8")
        _pip(root / SITE, "--no-deps", str(wheel))
    return Root(root)


def sizes(root: Root) -> dict[str, int]:
    """Return the bytes of each package of the runtime."""
    found: dict[str, int] = {}
    for path in (root.path / SITE).rglob("*"):
        if path.is_file() and not path.is_symlink():
            name = path.relative_to(root.path / SITE).parts[0]
            found[name] = found.get(name, 0) + path.stat().st_size
    return found
