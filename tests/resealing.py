"""Seal a bundle again after its files were changed, as a tool would that keeps all hashes right."""

from __future__ import annotations

import json
from pathlib import Path

from gpt_onnx.bundle import Manifest, decode_manifest, seal

EVIDENCE = ("parity.json", "quality.json")


def reseal(folder: Path) -> Manifest:
    """Make the manifest right for what the folder holds now."""
    return seal(folder, decode_manifest((folder / "manifest.json").read_bytes()))


def reseal_with_evidence(folder: Path) -> Manifest:
    """Make the manifest right, and let the evidence be of the graphs and weights that are there now."""
    manifest = reseal(folder)
    for path in (folder / name for name in EVIDENCE if name in manifest.files):
        values = json.loads(path.read_text(encoding="utf-8"))
        values["sha256"] = {name: manifest.files[name].sha256 for name in manifest.graph.paths}
        path.write_text(json.dumps(values), encoding="utf-8")
    return reseal(folder)
