"""What the table of clients says of a bundle, held to what a client makes of it.

    check_as_told(OPENVINO, version, known, partial(run_each, worker, known), ERROR)

A bundle that the table says a version runs must give this runtime's text; of any other the client must say
the error that the table tells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from gpt_onnx.clients import Client, facts_of, judge
from tests.interop._known import Known
from tests.interop._running import Ran, is_too_old
from tests.interop._worker import ClientFailed

Continue = Callable[[Sequence[Sequence[int]]], Sequence[Ran]]
"""Continues batches, each of some of the prompts."""
BATCHES = ((0,), (0, 1))
"""One prompt, and two of unequal lengths."""
OTHER_TEXT = "parts from this runtime's text"
NOTHING = "(?!)"
"""A pattern that no error has: of clients that run every bundle."""


def is_said_to_run(client: Client, version: str, known: Known) -> bool:
    """Whether the table says that a version of a client runs a bundle."""
    return judge(client, facts_of(known.gpt.engine.bundle)).runs and not is_too_old(client, version, known)


def check_same(known: Known, go: Continue, *, batch: bool) -> None:
    """Hold one prompt's text, and that of a batch of two where asked, to this runtime's."""
    for ran in go(BATCHES[: 1 + batch]):
        ran.check(known)


def check_refused(known: Known, go: Continue, error: str) -> None:
    """See a client refuse a bundle, or write another text, with an error: a pattern."""
    with pytest.raises((ClientFailed, AssertionError), match=error):
        check_same(known, go, batch=False)


def check_as_told(
    client: Client, version: str, known: Known, go: Continue, error: str = NOTHING, *, batch: bool = True
) -> None:
    """Hold a client's text to ours, or see the error that it has for a bundle that it does not run.

    Args:
        client: Whose entry of the table is believed.
        version: Of the client.
        known: The bundle.
        go: Lets the client continue prompts.
        error: What the client says of a bundle that it does not run: a pattern.
        batch: Whether the client takes prompts of unequal lengths with this bundle.
    """
    if is_said_to_run(client, version, known):
        check_same(known, go, batch=batch)
    else:
        check_refused(known, go, error)
