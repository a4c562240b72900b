"""What a bundle that browsers can run had better be, in one sentence.

advice_on(open_bundle("bundle").manifest)       # None, where there is nothing to say
"""

from __future__ import annotations

from gpt_onnx.bundle import Manifest
from gpt_onnx.bundle._ops import MICROSOFT_DOMAIN, allowed_domains

MAX_UNFOLDED_BYTES = 1_500_000_000
"""Weights that the page makes floating point when it loads a graph, at most (site/worker.js)."""
FLOAT_BYTES = 4


def advice_on(manifest: Manifest) -> str | None:
    """Return how to make a bundle faster in the page; None where it is as fast as it gets.

    WebAssembly has no fast product with integer weights (MatMulNBits): each becomes a float again at every
    token. Behind DequantizeLinear the page has them computed once (docs/web.md has the figures).
    """
    has_fused_integers = manifest.quantization is not None and MICROSOFT_DOMAIN in allowed_domains(manifest)
    if not has_fused_integers or FLOAT_BYTES * manifest.model.parameters > MAX_UNFOLDED_BYTES:
        return None
    return (
        f"{manifest.name} is {manifest.precision} of target {manifest.target}, whose products are slow in "
        "WebAssembly: exported with --target portable, it writes about eight times as fast in this page."
    )
