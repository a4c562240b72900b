"""The check of a bundle's graphs, before anything runs them.

    check_graph(open_bundle("my-gpt"))

It reads the graphs with a parser of its own and refuses: unknown operators and domains, subgraphs and
functions, dims that are not positive, weights that do not fill the data files exactly, inputs and outputs
that differ from what the layout promises, versions that differ from the manifest's, values that are used
before they are made, integer weights that are not as the manifest's quantization says, sizes of the model
that are not those of the weights. A manifest that contradicts itself is refused first.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpt_onnx.bundle._consistency import check_consistency
from gpt_onnx.bundle._external import Region, check_coverage, regions_of
from gpt_onnx.bundle._graph import read_graph
from gpt_onnx.bundle._integer_weights import check_integer_weights
from gpt_onnx.bundle._manifest import Manifest
from gpt_onnx.bundle._names import MANIFEST, shorten
from gpt_onnx.bundle._open import Bundle
from gpt_onnx.bundle._ops import check_operators, check_versions
from gpt_onnx.bundle._signature import check_signature
from gpt_onnx.bundle._sizes import check_sizes
from gpt_onnx.bundle._summary import GraphSummary
from gpt_onnx.errors import BundleError


def _check_dims(summary: GraphSummary, manifest: Manifest) -> None:
    """Fixed dims are positive; a traced graph may hold empty constants."""
    for value in (*summary.inputs, *summary.outputs):
        if any(isinstance(dim, int) and dim < 1 for dim in value.dims):
            raise BundleError(
                f"{shorten(value.name)} has the dims {shorten(list(value.dims))}; they must be positive."
            )
    least = 0 if manifest.graph.attention == "traced" else 1
    for weight in summary.initializers:
        if any(dim < least for dim in weight.dims):
            raise BundleError(
                f"weight {shorten(weight.name)} has the dims {list(weight.dims)}; they must be positive."
            )


def _check_order(summary: GraphSummary) -> None:
    """Each value is made once, before it is used; each output is made."""
    weights = [weight.name for weight in summary.initializers]
    made = {value.name for value in summary.inputs}.union(weights)
    if len(set(weights)) < len(weights) or "" in made:
        raise BundleError("two weights have the same name, or something has none.")
    for node in summary.nodes:
        if unmade := [name for name in node.inputs if name and name not in made]:
            raise BundleError(
                f"node {shorten(node.name)} uses {shorten(unmade[0])}, which nothing before it makes."
            )
        for name in filter(None, node.outputs):
            if name in made:
                raise BundleError(f"node {shorten(node.name)} makes {shorten(name)}, which is there already.")
            made.add(name)
    if unmade := [value.name for value in summary.outputs if value.name not in made]:
        raise BundleError(f"nothing makes the output {shorten(unmade[0])}.")


def _check_manifest(bundle: Bundle) -> None:
    try:
        check_consistency(bundle.manifest)
    except BundleError as exc:
        raise BundleError(f"{bundle.file(MANIFEST)} contradicts itself: {exc}") from exc


def check_summaries(bundle: Bundle, summaries: Mapping[str, GraphSummary]) -> None:
    """Check graphs that were read already: role to summary; see ``check_graph``.

    Raises:
        BundleError: for the first fault; the message names the file.
    """
    manifest = bundle.manifest
    _check_manifest(bundle)
    regions: dict[str, set[Region]] = {path: set() for path in manifest.graph.data_files}
    for role, summary in summaries.items():
        try:
            check_versions(summary, manifest)
            check_operators(summary, manifest)
            _check_dims(summary, manifest)
            _check_order(summary)
            check_signature(summary, manifest, role)
            check_integer_weights(summary, manifest)
            check_sizes(summary, manifest)
            for path, taken in regions_of(summary, manifest, manifest.graph.graphs[role]).items():
                regions[path] |= taken
        except BundleError as exc:
            raise BundleError(f"{bundle.graph_path(role)} is not a graph that may run: {exc}") from exc
    for path, taken in regions.items():
        check_coverage(taken, bundle.file(path))


def check_graph(bundle: Bundle) -> None:
    """Check that the graphs of a bundle are what its manifest says and hold nothing else.

    Raises:
        BundleError: for the first fault; the message names the file.
    """
    check_summaries(
        bundle, {role: read_graph(bundle.graph_path(role)) for role in bundle.manifest.graph.graphs}
    )
