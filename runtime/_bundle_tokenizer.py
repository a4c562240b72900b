"""Whether the tokenizer that a bundle brings is one with which the runtime makes text."""

from __future__ import annotations

from gpt_onnx.bundle import Bundle
from gpt_onnx.errors import BundleError

from .tokenizer import load_tokenizer

TOKENIZER = "tokenizer.json"


def check_tokenizer(bundle: Bundle) -> None:
    """Load the tokenizer, if there is one, as text is generated with it.

    Raises:
        BundleError: if it is not one that the runtime takes.
    """
    if TOKENIZER not in bundle.manifest.files:
        return
    try:
        load_tokenizer(bundle.file(TOKENIZER))
    except BundleError as exc:
        raise BundleError(
            f"the tokenizer of {bundle.path} cannot be used: {str(exc).rstrip('.')}; "
            "export again with another --tokenizer, or with none."
        ) from exc
