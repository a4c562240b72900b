"""The layouts of checkpoints that can be written, one file each; a new one is a new entry of LAYOUTS."""

from __future__ import annotations

from gpt_onnx.checkpoint.writers import hf_gpt2, hf_llama, own
from gpt_onnx.checkpoint.writers._layout import Layout
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import InputError

LAYOUTS: tuple[Layout, ...] = (own.LAYOUT, hf_gpt2.LAYOUT, hf_llama.LAYOUT)
"""In the order in which they are tried."""
FAMILIES = tuple(dict.fromkeys(layout.family for layout in LAYOUTS))

__all__ = ["FAMILIES", "LAYOUTS", "Layout", "choose_layout"]


def choose_layout(config: GPTConfig, family: str, name: str = "the model") -> Layout:
    """Return the first layout of a family that a model fits.

    Args:
        config: The model.
        family: One of FAMILIES.
        name: What to call the model in a message.

    Raises:
        InputError: if it fits none, with what each takes; or there is no such family.
    """
    layouts = [layout for layout in LAYOUTS if layout.family == family]
    if not layouts:
        raise InputError(f"there is no layout {family!r}; known are {', '.join(FAMILIES)}.")
    refused = {layout.name: layout.fits(config) for layout in layouts}
    if fitting := next((layout for layout in layouts if refused[layout.name] is None), None):
        return fitting
    reasons = "; ".join(f"for {layout}, {reason}" for layout, reason in refused.items())
    raise InputError(f"{name} cannot be written in the layout {family}: {reasons}.")
