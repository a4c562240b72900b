"""Node.js, and packages of npm for it and for browsers.

    modules = node_modules_of("newest")                  # js/newest/package.json and its lock, by npm ci
    with answering("greedy_node.mjs", modules) as worker:    # a script of js/
        worker.ask({...})

Tests are skipped where there is no Node.js, and with npm's last words where packages cannot be installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop._environments import cache_folder, install, locked
from tests.interop._worker import ClientFailed, Worker, started

JS = Path(__file__).parent / "js"
FILES = ("package.json", "package-lock.json")
STAMP = "installed.json"
LAST_WORDS = 3000  # characters; a stack lies between the message and the end


def program(name: str) -> str:
    """Return the path of node or npm; skips the test where there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed here; it comes with Node.js 20 or newer")
    return found


def node_modules_of(name: str) -> Path:
    """Return the node_modules folder of an environment.

    Args:
        name: A folder of js/ that holds package.json and package-lock.json.
    """
    environment = cache_folder() / f"npm-{name}"
    wanted = (JS / name / FILES[1]).read_text(encoding="utf-8")
    stamp = environment / STAMP
    with locked(environment):
        if not (stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted):
            for file in FILES:
                shutil.copy(JS / name / file, environment)
            npm = [program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
            install(npm, f"the npm packages of {name}", environment)
            stamp.write_text(wanted, encoding="utf-8")
    return environment / "node_modules"


def run_file(script: Path, *arguments: str, said: str = "", folder: Path | None = None) -> str:
    """Run a script on one thread and return what it prints.

    Raises:
        ClientFailed: With the end of what it wrote on stderr.
    """
    done = subprocess.run(
        [program("node"), str(script), *arguments],
        input=said,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=600,
    )
    if done.returncode:
        raise ClientFailed(f"{script.name}: {done.stderr[-LAST_WORDS:]}")
    return done.stdout


@contextmanager
def answering(script: str, modules: Path) -> Iterator[Worker]:
    """Have a script of js/ answer orders, which ends with the block.

    Args:
        script: Its name.
        modules: Where it finds packages.
    """
    with started([program("node"), JS / script, modules]) as worker:
        yield worker
