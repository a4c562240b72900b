"""The targets of bundles, and whose operators their graphs may use."""

from __future__ import annotations

from collections.abc import Mapping

TARGETS: Mapping[str, bool] = {"cpu": True, "web": True, "portable": False}
"""Each target with whether operators of com.microsoft may be used."""
PRECISIONS = ("fp32", "fp16", "int8", "int4")
"""How weights can be stored."""
HALF = "fp16"
SINGLE = "fp32"
CHECK_LEVELS = ("none", "quick", "standard", "deep")
"""How thoroughly an export compares with the original; with "none" not at all."""
UNCHECKED = "none"
