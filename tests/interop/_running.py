"""Run a client's program in the client's environment, and hold what it writes to this project's runtime.

python = environment_of(ONNXRUNTIME, version)
check_alone_and_together(python, "onnxruntime_loop.py", known)
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpt_onnx.clients import Client, facts_of, is_older, judge, oldest_version
from tests.interop._environments import python_of
from tests.interop._known import NEW_TOKENS, PROMPTS, Known

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
SECONDS = 600


class ClientFailed(Exception):  # noqa: N818  # it is what happened, to the client
    """A client's program ended with an error: its last line."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a program wrote."""

    ids: list[list[int]]
    texts: list[str] | None
    version: str


def versions(client: Client) -> tuple[str, ...]:
    """Return the versions to run: the newest, or all that were tried."""
    return client.tried if os.environ.get(ALL_VERSIONS) else (client.newest,)


def environment_of(client: Client, version: str) -> Path:
    """Return the interpreter that has a version of a client."""
    return python_of(FILES[client.name], f"{client.package.split()[-1]}=={version}")


def run(python: Path, program: str, known: Known, rows: Sequence[int] = (0,)) -> Ran:
    """Let a program continue some of the prompts, as one batch.

    Raises:
        ClientFailed: with its last line.
    """
    prompts, texts = [known.prompt_ids[row] for row in rows], [PROMPTS[row] for row in rows]
    return run_order(python, program, known.path, prompts, texts)


def run_order(
    python: Path, program: str, bundle: Path, prompts: Sequence[Sequence[int]], texts: Sequence[str] = ()
) -> Ran:
    """Let a program continue prompts, as one batch; without texts, by ids alone.

    Raises:
        ClientFailed: with its last line.
    """
    order = {"bundle": str(bundle), "prompts": prompts, "texts": texts, "new_tokens": NEW_TOKENS}
    done = subprocess.run(
        [python, PROGRAMS / program], input=json.dumps(order), capture_output=True, text=True, timeout=SECONDS
    )
    if done.returncode:
        raise ClientFailed((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
    answer = json.loads(done.stdout.splitlines()[-1])
    return Ran(answer["ids"], answer.get("texts"), answer["version"])


def is_too_old(client: Client, version: str, known: Known) -> bool:
    """Whether the table says that a version cannot run a bundle."""
    facts = facts_of(known.gpt.engine.bundle)
    return is_older(version, oldest_version(client, facts))


def runs(client: Client, known: Known) -> bool:
    """Return whether the table says that a client can run a bundle at all."""
    return judge(client, facts_of(known.gpt.engine.bundle)).runs


def check_alone(python: Path, program: str, known: Known) -> None:
    """Hold the text of one prompt to this runtime's."""
    ran = run(python, program, known)
    known.check(ran.ids)
    known.check_texts(ran.ids, ran.texts)


def check_alone_and_together(python: Path, program: str, known: Known) -> None:
    """Hold the text of one prompt, and of a batch of two that are not equally long, to this runtime's."""
    check_alone(python, program, known)
    ran = run(python, program, known, rows=(0, 1))
    known.check(ran.ids)
    known.check_texts(ran.ids, ran.texts)
