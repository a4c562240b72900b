"""What a client is: the versions that were tried, what it needs of a bundle, and what it does only in part.

    judge(GENAI, facts)         # Verdict: from which version on, or why not

A condition is a predicate over the facts with a sentence; the sentence may name ``BundleFacts.words``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpt_onnx.clients._facts import BundleFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Something that holds for a bundle or not, and what is to be said where it does not."""

    holds: Callable[[BundleFacts], bool]
    otherwise: str
    """One sentence without its full stop: what is so, and the remedy."""

    def fault(self, facts: BundleFacts) -> str | None:
        """Return what is to be said, None where it holds."""
        return None if self.holds(facts) else self.otherwise.format(**facts.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """The first version of a client that runs bundles of some kind."""

    version: str
    holds: Callable[[BundleFacts], bool]
    """Whether a bundle is of the kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One program or library that opens bundles."""

    name: str
    package: str
    """Where it comes from: "PyPI onnxruntime"."""
    tried: tuple[str, ...]
    """Versions that the interop tests ran, the oldest first."""
    needs: tuple[Condition, ...] = ()
    """Without any of these it cannot run a bundle."""
    limits: tuple[Condition, ...] = ()
    """Without these it runs a bundle in part, or only if told something."""
    since: tuple[Since, ...] = ()
    """Kinds of bundles that versions older than some cannot run."""
    usage: str = ""
    """Its paragraph in a bundle's README; {graph} is the path of the first graph."""

    @property
    def newest(self) -> str:
        """Return the newest version tried."""
        return self.tried[-1]


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a client can run a bundle."""

    client: Client
    oldest: str
    """The oldest version that runs it, of those tried."""
    faults: tuple[str, ...]
    """Why it cannot be run; empty: it can."""
    limits: tuple[str, ...]
    """What to know where it can."""

    @property
    def runs(self) -> bool:
        """Whether it can be run."""
        return not self.faults


def oldest_version(client: Client, facts: BundleFacts) -> str:
    """Return the oldest version tried that has all that a bundle needs."""
    versions = [client.tried[0], *(since.version for since in client.since if since.holds(facts))]
    return max(versions, key=_number)


def is_older(version: str, than: str) -> bool:
    """Whether a version comes before another; letters after the numbers do not count."""
    return _number(version) < _number(than)


def judge(client: Client, facts: BundleFacts) -> Verdict:
    """Return whether a client can run a bundle, from which version on, and why not."""
    faults = tuple(filter(None, (need.fault(facts) for need in client.needs)))
    limits = () if faults else tuple(filter(None, (limit.fault(facts) for limit in client.limits)))
    return Verdict(client=client, oldest=oldest_version(client, facts), faults=faults, limits=limits)
