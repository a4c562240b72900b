"""Run a client's program in the client's environment, and hold what it writes to this project's runtime.

version = each_version(ONNXRUNTIME)
worker = each_worker(ONNXRUNTIME, "onnxruntime_loop.py")

def test_it(worker, bundles):
    run(worker, known := bundles("gpt2"), rows=(0, 1)).check(known)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.clients import Client, facts_of, is_older, oldest_version
from tests.interop._environments import python_of
from tests.interop._known import NEW_TOKENS, PROMPTS, Known
from tests.interop._worker import Worker, started

PROGRAMS = Path(__file__).parent / "programs"
ALL_VERSIONS = "GPT_ONNX_INTEROP_ALL"
"""Set by ``make interop``: every version tried, instead of the newest alone."""
FILES: Mapping[str, str] = {
    "onnxruntime": "onnxruntime",
    "onnxruntime-genai": "genai",
    "OpenVINO": "openvino",
    "optimum": "optimum",
    "ONNX reference evaluator": "reference",
}
"""Client to the middle of the name of its requirements file."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a program wrote."""

    ids: list[list[int]]
    texts: list[str] | None = None

    def check(self, known: Known) -> None:
        """Hold it to what this runtime writes."""
        known.check(self.ids)
        known.check_texts(self.ids, self.texts)


def versions(client: Client) -> tuple[str, ...]:
    """Return the versions to run: the newest, or all that were tried."""
    return client.tried if os.environ.get(ALL_VERSIONS) else (client.newest,)


def environment_of(client: Client, version: str) -> Path:
    """Return the interpreter that has a version of a client."""
    return python_of(FILES[client.name], f"{client.package.split()[-1]}=={version}")


def each_version(client: Client) -> Any:
    """Return a fixture, ``version``, that runs a test once for each version."""

    @pytest.fixture(name="version", params=versions(client), scope="module")
    def version(request: pytest.FixtureRequest) -> str:
        chosen: str = request.param
        return chosen

    return version


def each_environment(client: Client) -> Any:
    """Return a fixture, ``python``: the interpreter that has the ``version``."""

    @pytest.fixture(name="python", scope="module")
    def python(version: str) -> Path:
        return environment_of(client, version)

    return python


def each_worker(client: Client, program: str, name: str = "worker") -> Any:
    """Return a fixture: a program of programs/ that answers orders in the environment of the ``version``."""

    @pytest.fixture(name=name, scope="module")
    def worker(version: str) -> Iterator[Worker]:
        with started([environment_of(client, version), PROGRAMS / program]) as running:
            yield running

    return worker


def run(worker: Worker, known: Known, rows: Sequence[int] = (0,)) -> Ran:
    """Let a program continue some of the prompts, as one batch.

    Raises:
        ClientFailed: with what it says.
    """
    prompts, texts = [known.prompt_ids[row] for row in rows], [PROMPTS[row] for row in rows]
    return run_order(worker, known.path, prompts, texts)


def run_each(worker: Worker, known: Known, batches: Sequence[Sequence[int]]) -> list[Ran]:
    """Let a program continue several batches of prompts, one after another.

    Raises:
        ClientFailed: with what it says.
    """
    return [run(worker, known, rows) for rows in batches]


def run_order(
    worker: Worker, bundle: Path, prompts: Sequence[Sequence[int]], texts: Sequence[str] = ()
) -> Ran:
    """Let a program continue prompts, as one batch; without texts, by ids alone.

    Raises:
        ClientFailed: with what it says.
    """
    order = {"bundle": str(bundle), "prompts": prompts, "texts": texts, "new_tokens": NEW_TOKENS}
    return Ran(**worker.ask(order))


def is_too_old(client: Client, version: str, known: Known) -> bool:
    """Whether the table says that a version cannot run a bundle."""
    facts = facts_of(known.gpt.engine.bundle)
    return is_older(version, oldest_version(client, facts))
