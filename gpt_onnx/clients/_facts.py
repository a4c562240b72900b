"""What of a bundle decides which clients can run it.

facts_of(open_bundle("my-gpt")).tokenizer       # "byte-level BPE"
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_onnx.bundle import Bundle, Manifest
from gpt_onnx.bundle._hashing import read_bounded
from gpt_onnx.bundle._names import shorten
from gpt_onnx.bundle._ops import MICROSOFT_DOMAIN, allowed_domains
from gpt_onnx.errors import BundleError

BYTE_LEVEL_BPE = "byte-level BPE"
MODEL_TYPES = ("gpt2", "llama")
"""Values of config.json's model_type by which clients work out the cache's shape."""
TIED = "tie_word_embeddings"
CONFIG, TOKENIZER = "config.json", "tokenizer.json"
_MAX_BYTES: Mapping[str, int] = {CONFIG: 1 << 20, TOKENIZER: 64 << 20}


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleFacts:
    """A bundle as other clients see it."""

    manifest: Manifest
    model_type: str | None
    """One of MODEL_TYPES; None where config.json does not tell the cache's shape."""
    tokenizer: str | None
    """The kind of its tokenizer, as ``tokenizer_kind`` calls it; None: it takes ids alone."""
    tied: bool = False
    """Whether head and embedding are one table."""
    data_bytes: tuple[int, ...] = ()
    """Bytes of each file of weights."""

    @property
    def layout(self) -> str:
        """Return the layout of its graphs."""
        return self.manifest.graph.layout

    @property
    def is_fused(self) -> bool:
        """Whether its graphs have operators of com.microsoft."""
        return MICROSOFT_DOMAIN in allowed_domains(self.manifest)

    @property
    def has_integers(self) -> bool:
        """Whether weights are small integers."""
        return self.manifest.quantization is not None

    @property
    def accuracy_level(self) -> int | None:
        """Return how products with integer weights take activations; None where there are none."""
        quantization = self.manifest.quantization
        return None if quantization is None else quantization.accuracy_level

    @property
    def words(self) -> dict[str, object]:
        """Return what sentences about it may name."""
        return {
            "layout": self.layout,
            "tokenizer": self.tokenizer,
            "opset": self.manifest.graph.opset,
            "largest": max(self.data_bytes, default=0),
            "level": self.accuracy_level,
        }


def _parts(step: Any) -> list[dict[str, Any]]:
    """Return the steps of a pre-tokenizer or decoder, which is one or a sequence."""
    if not isinstance(step, dict):
        return []
    lists = [step[key] for key in ("pretokenizers", "decoders") if isinstance(step.get(key), list)]
    return [step, *(part for parts in lists for part in parts if isinstance(part, dict))]


def tokenizer_kind(definition: Mapping[str, Any]) -> str:
    """Return what a tokenizer.json holds: "byte-level BPE", "BPE", "Unigram", "WordLevel", ..."""
    model = definition.get("model")
    model = model if isinstance(model, dict) else {}
    kind = model.get("type") or ("BPE" if "merges" in model else "unknown")
    steps = [*_parts(definition.get("pre_tokenizer")), *_parts(definition.get("decoder"))]
    is_byte_level = any(part.get("type") == "ByteLevel" for part in steps)
    return BYTE_LEVEL_BPE if kind == "BPE" and is_byte_level else str(kind)


def known_model_type(config: Mapping[str, Any]) -> str | None:
    """Return the model_type of a config.json that tells the cache's shape."""
    said = config.get("model_type")
    return said if said in MODEL_TYPES else None


def _read(path: Path) -> dict[str, Any]:
    """Read a JSON file of a bundle.

    Raises:
        BundleError: if it is not JSON.
    """
    try:
        values = json.loads(read_bounded(path, _MAX_BYTES[path.name]))
    except (ValueError, RecursionError) as exc:
        raise BundleError(f"{path} is no JSON: {shorten(str(exc))}; export the bundle again.") from exc
    return values if isinstance(values, dict) else {}


def facts_in(folder: Path, manifest: Manifest, sizes: Mapping[str, int]) -> BundleFacts:
    """Return the facts of a folder that becomes a bundle; ``sizes`` has the bytes of each file in it.

    Raises:
        BundleError: if config.json or tokenizer.json is not JSON.
    """
    config = _read(folder / CONFIG) if CONFIG in sizes else {}
    return BundleFacts(
        manifest=manifest,
        model_type=known_model_type(config),
        tied=config.get(TIED) is True,
        tokenizer=tokenizer_kind(_read(folder / TOKENIZER)) if TOKENIZER in sizes else None,
        data_bytes=tuple(sizes.get(path, 0) for path in manifest.graph.data_files),
    )


def facts_of(bundle: Bundle) -> BundleFacts:
    """Return the facts of a verified bundle.

    Raises:
        BundleError: if config.json or tokenizer.json is not JSON.
    """
    sizes = {name: entry.size for name, entry in bundle.manifest.files.items()}
    return facts_in(bundle.path, bundle.manifest, sizes)
