"""The files by which other clients understand a bundle, held against its manifest and its graphs.

    check_companions(open_bundle("my-gpt"))

Each is compared with what an export writes of the same manifest and the same model, by the very functions
that write it. Keys that an export does not write are the user's own, and so are the values of sampling and
session options; but not in what onnxruntime-genai takes for the model itself, where a key more (a sliding
window, a pipeline, an encoder) makes it compute something else. Which tokens begin and end a text no graph
tells; the files have to agree on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpt_onnx.bundle import Bundle, GraphSummary, read_graph
from gpt_onnx.bundle._names import AGAIN, shorten
from gpt_onnx.clients._comparing import compare, read_text, read_values
from gpt_onnx.clients._config_json import config_json
from gpt_onnx.clients._described import Described, described
from gpt_onnx.clients._facts import CONFIG
from gpt_onnx.clients._genai_config import genai_config_json
from gpt_onnx.clients._generation_config import generation_config_json
from gpt_onnx.clients._operators import OPERATORS_FILE, missing_operators
from gpt_onnx.errors import BundleError
from gpt_onnx.hf_words import ROLES, SAMPLING_WORDS

CONFIG_FILE = CONFIG
GENERATION_FILE, GENAI_FILE = "generation_config.json", "genai_config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """One file for other clients."""

    name: str
    written: Callable[[Described], dict[str, Any] | None]
    """What an export writes; None: no such file."""
    free: Collection[str] = ()
    """Places whose values are the user's."""
    closed: Collection[str] = ()
    """Places in which there is nothing but what an export writes."""


def _genai(of: Described) -> dict[str, Any] | None:
    if of.config is None or of.manifest.graph.layout != "dynamic":
        return None
    return genai_config_json(of.manifest, of.config, of.special)


_SEARCH = ("max_length", "min_length", *SAMPLING_WORDS)
COMPANIONS = (
    Companion(name=CONFIG_FILE, written=lambda of: config_json(of.manifest, of.config, of.special)),
    Companion(
        name=GENERATION_FILE,
        written=lambda of: generation_config_json(of.special),
        free=SAMPLING_WORDS,
    ),
    Companion(
        name=GENAI_FILE,
        written=_genai,
        free=("model.decoder.session_options", *(f"search.{word}" for word in _SEARCH)),
        closed=("model",),
    ),
)
"""The files of JSON, each with what an export writes into it."""


def _check_roles(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """See that a file names no special token that others do not name."""
    if more := [role for role in ROLES if found.get(role) is not None and role not in expected]:
        raise BundleError(
            f"{more[0]} is {shorten(found[more[0]])} and {CONFIG_FILE} names none; let both say the same."
        )


def _check_companion(bundle: Bundle, companion: Companion, of: Described) -> None:
    expected = companion.written(of)
    if expected is None:
        if companion.name in bundle.manifest.files:
            raise BundleError(
                f"{bundle.path} has a {companion.name}, which its layout {of.manifest.graph.layout} does not "
                f"have; {AGAIN}."
            )
        return
    found = read_values(bundle, companion.name)
    try:
        compare(found, expected, companion.free, companion.closed)
        _check_roles(found, expected)
    except BundleError as exc:
        raise BundleError(f"{bundle.file(companion.name)} contradicts the bundle: {exc}") from exc


def _check_operators(bundle: Bundle, summaries: Iterable[GraphSummary]) -> None:
    text = read_text(bundle, OPERATORS_FILE)
    if missing := missing_operators(text, summaries):
        raise BundleError(
            f"{bundle.file(OPERATORS_FILE)} lacks {', '.join(missing[:3])}, which the graph needs; {AGAIN}."
        )


def check_companions(bundle: Bundle) -> None:
    """Check that the files for other clients say of a bundle what its manifest and its graphs do.

    Args:
        bundle: Verified, its graphs checked.

    Raises:
        BundleError: for the first that is missing, or says something else; the message names file and key.
    """
    graphs = [read_graph(bundle.graph_path(role)) for role in bundle.manifest.graph.graphs]
    of = described(bundle, graphs)
    for companion in COMPANIONS:
        _check_companion(bundle, companion, of)
    _check_operators(bundle, graphs)
