"""The files by which other programs understand a bundle, each read as the program that reads it would.

    check_client_files(open_bundle("my-gpt"))

``verify`` and ``inspect --clients`` both ask here, so that they say the same. Nothing is computed: it needs
neither PyTorch nor ONNX Runtime.
"""

from __future__ import annotations

from gpt_onnx.bundle import Bundle
from gpt_onnx.clients import GENERATION_FILE, check_companions

from ._bundle_tokenizer import check_tokenizer
from .generation_config import read_generation_defaults


def check_client_files(bundle: Bundle) -> None:
    """Check tokenizer, sampling defaults, and what the other files say of manifest and graphs.

    Args:
        bundle: Verified, its graphs checked.

    Raises:
        BundleError: for the first that is not as it should be; the message names the file.
    """
    check_tokenizer(bundle)
    check_companions(bundle)
    read_generation_defaults(bundle.file(GENERATION_FILE), vocab_size=bundle.manifest.model.vocab_size)
