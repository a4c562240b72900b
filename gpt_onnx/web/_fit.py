"""Whether a browser can run a bundle: one sentence for each reason why not.

    check_fit(open_bundle("bundle"))

The graphs are checked against the manifest first: what is read of them below is what they hold.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpt_onnx.bundle import Bundle, GraphSummary, Manifest, check_summaries, read_graph
from gpt_onnx.errors import BundleError

TARGETS = ("cpu", "web", "portable")
MAX_FILE_BYTES = 2_000_000_000
"""What a browser gives for one buffer, and WebAssembly's memory holds beside the runtime."""
MAX_TENSOR_BYTES = 256 << 20
"""What a device's buffers are granted in every browser."""
LOGITS = "float32"


def _faults_of_form(manifest: Manifest) -> Iterator[str]:
    """Yield what is wrong with targets, layouts and frozen sizes."""
    graph = manifest.graph
    if manifest.target not in TARGETS:
        yield f"it is made for {manifest.target}; export it with --target web"
    if graph.layout == "static" or graph.seq_len is not None:
        yield f"its graph is frozen to {graph.seq_len} tokens; export it with --seq-len dynamic"
    if graph.batch_size not in (None, 1):
        yield f"its graph is frozen to {graph.batch_size} rows; export it with --batch-size dynamic"


def _faults_of_size(manifest: Manifest, summary: GraphSummary) -> Iterator[str]:
    """Yield what is too large."""
    weights = sum(manifest.files[path].size for path in manifest.graph.data_files)
    if weights > MAX_FILE_BYTES:
        yield (
            f"its weights have {weights:,} bytes and a browser takes at most {MAX_FILE_BYTES:,}; export it "
            "with --precision int4"
        )
    for weight in summary.initializers:
        if weight.bytes > MAX_TENSOR_BYTES:
            yield (
                f"its weight {weight.name} has {weight.bytes:,} bytes and a browser takes at most "
                f"{MAX_TENSOR_BYTES:,}; export it with --precision int8 or int4"
            )


def _faults_of_logits(summary: GraphSummary) -> Iterator[str]:
    found = [value.elem_type for value in summary.outputs if value.name == "logits"]
    if found != [LOGITS]:
        yield f"its logits are of type {', '.join(found) or 'none'} and the page reads {LOGITS}"


def check_fit(bundle: Bundle) -> None:
    """Check the graphs of a bundle, and that a browser can run them.

    Raises:
        BundleError: for the first reason why it cannot.
    """
    faults = _faults_of_form(bundle.manifest)
    if fault := next(faults, None):
        raise BundleError(f"{bundle.path} cannot run in a browser: {fault}.")
    summary = read_graph(bundle.graph_path())
    check_summaries(bundle, {"model": summary})
    faults = iter((*_faults_of_size(bundle.manifest, summary), *_faults_of_logits(summary)))
    if fault := next(faults, None):
        raise BundleError(f"{bundle.path} cannot run in a browser: {fault}.")
