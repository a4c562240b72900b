"""What a bundle's files tell of its speed and quality, beside what its manifest says."""

from __future__ import annotations

from typing import Any

from gpt_onnx.bundle import Bundle, describe_bundle, read_graph, read_quality

from .traffic import weights_read


def mean_kl(bundle: Bundle) -> float | None:
    """Return the mean divergence from float32 that the export measured; None where it measured none.

    Of float32 itself it is 0.

    Raises:
        BundleError: if the file is not what an export writes.
    """
    if bundle.manifest.precision == "fp32":
        return 0.0
    quality = read_quality(bundle)
    return None if quality is None else quality.kl_mean


def step_traffic(bundle: Bundle) -> dict[str, Any]:
    """Return the facts on what a step reads, for graphs with a cache that grows.

    A plain graph computes everything anew in each step, and one of a frozen length reads all of its cache.
    """
    if bundle.manifest.graph.layout != "dynamic":
        return {}
    return {
        "weight_bytes": weights_read(read_graph(bundle.graph_path())),
        "cache_bytes_per_token": describe_bundle(bundle)["cache_bytes_per_token"],
    }
