"""What ``gpt-onnx inspect --clients`` says of other programs: which versions of which can run a bundle."""

from __future__ import annotations

from typing import Any

from gpt_onnx.bundle import Bundle
from gpt_onnx.clients import Verdict, facts_of, verdicts


def _versions(verdict: Verdict) -> str:
    newest = verdict.client.newest
    return newest if verdict.oldest == newest else f"{verdict.oldest} to {newest}"


def _as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "name": verdict.client.name,
        "package": verdict.client.package,
        "runs": verdict.runs,
        "oldest": verdict.oldest,
        "newest_tried": verdict.client.newest,
        "versions": _versions(verdict),
        "why_not": list(verdict.faults),
        "limits": list(verdict.limits),
    }


def client_facts(bundle: Bundle) -> list[dict[str, Any]]:
    """Return for each client, as plain JSON, whether it can run a bundle, which versions, and why not.

    Raises:
        BundleError: if a file that they read is not JSON, or says something else than manifest and graphs.
    """
    from gpt_onnx.runtime._client_files import check_client_files

    check_client_files(bundle)
    return [_as_json(verdict) for verdict in verdicts(facts_of(bundle))]
