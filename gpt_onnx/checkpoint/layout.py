"""Our own checkpoint's files."""

from __future__ import annotations

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CONVERTED_FROM = "converted_from"
"""In the metadata of the weights: what another program's checkpoint was, from which they were converted."""
