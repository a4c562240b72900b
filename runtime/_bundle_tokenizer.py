"""Whether the tokenizer that a bundle brings is one with which the runtime makes text."""

from __future__ import annotations

from gpt_onnx.bundle import Bundle
from gpt_onnx.bundle._names import AGAIN
from gpt_onnx.errors import BundleError

from ._json import read_object
from ._tokenizer_parts import REMEDY
from .generation_config import read_generation_defaults
from .tokenizer import MAX_FILE, load_tokenizer

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"


def check_tokenizer(bundle: Bundle) -> None:
    """Load the tokenizer, if there is one, as it is loaded to make text, and see that its settings are some.

    Raises:
        BundleError: if it is not one that the runtime takes, or is of another model, or its settings are no
            JSON object.
    """
    if SETTINGS in bundle.manifest.files:
        read_object(bundle.file(SETTINGS), limit=MAX_FILE)
    if TOKENIZER not in bundle.manifest.files:
        return
    vocab_size = bundle.manifest.model.vocab_size
    defaults = read_generation_defaults(bundle.path / "generation_config.json", vocab_size=vocab_size)
    control_ids = [*defaults.eos_ids, *([] if defaults.bos_id is None else [defaults.bos_id])]
    try:
        load_tokenizer(bundle.file(TOKENIZER), control_ids).allowed(vocab_size)
    except BundleError as exc:
        reason = str(exc).removesuffix(".").removesuffix(f"; {REMEDY}").removesuffix(f"; {AGAIN}")
        raise BundleError(f"the tokenizer of {bundle.path} cannot be used: {reason}; {REMEDY}.") from exc
