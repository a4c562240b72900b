"""Load a bundle: the order of verification, and what runs at the same time.

    with loading("bundle", "cpu", threads=2) as loaded:
        tokenizer = load_tokenizer(loaded.bundle.file("tokenizer.json"))    # while the sessions are made
        graphs = loaded.graphs()                                            # waits for them
    # here the weights are verified too

    this thread     open and check the bundle ─ import onnxruntime ─ the caller's block ─ wait
    hashing         ················ SHA-256 of the weights ················
    sessions                                                       ─ map, optimise, prepack ─

Making sessions and hashing leave Python's lock free, so on two cores they cost next to nothing but their
own time, and the longest of the three counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_onnx._background import Background
from gpt_onnx.bundle import Bundle, check_graph, verifying
from gpt_onnx.errors import BundleError, ProviderError

from ._checks import TrainedLength
from ._session import GraphSession, SessionSettings
from .decoder import Graphs
from .providers import check_suits, find_device, import_onnxruntime


def _sessions(bundle: Bundle, settings: SessionSettings, ort: Any) -> dict[str, GraphSession]:
    """Make a session of each graph.

    Raises:
        BundleError: if ONNX Runtime refuses a graph.
        ProviderError: if that is because it is too old.
    """
    try:
        return {
            role: GraphSession(bundle.graph_path(role), settings, ort)
            for role in bundle.manifest.graph.graphs
        }
    except BundleError as exc:
        from gpt_onnx.clients import fault_of_onnxruntime  # here, as few need it

        fault = fault_of_onnxruntime(bundle.manifest, ort.__version__)
        if fault is None:
            raise
        raise ProviderError(f"{fault}.") from exc


def _load_graphs(bundle: Bundle, settings: SessionSettings, ort: Any) -> Graphs:
    manifest = bundle.manifest
    sessions = _sessions(bundle, settings, ort)
    context = manifest.model.context_length if manifest.model.position_limit is None else None
    return Graphs(
        sessions=sessions,
        graph=manifest.graph,
        model=manifest.model,
        trained_length=TrainedLength(context),
        rounds_activations=manifest.quantization is not None and manifest.quantization.accuracy_level > 0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A bundle of which everything but the weights is verified, and its sessions in the making."""

    bundle: Bundle
    pending: Background[Graphs]

    def graphs(self) -> Graphs:
        """Wait for the sessions.

        Raises:
            BundleError: if ONNX Runtime refuses a graph.
            ProviderError: if it put a session on another device.
        """
        return self.pending.result()


def _settings(bundle: Bundle, provider: str, threads: int, profile: Path | None) -> SessionSettings:
    manifest = bundle.manifest
    device = find_device(provider, manifest.target)
    check_suits(manifest, device)
    quantization = manifest.quantization
    return SessionSettings(
        device=device,
        threads=threads,
        frozen=manifest.graph.layout == "static",
        profile=profile,
        qdq_accuracy_level=None if quantization is None else quantization.accuracy_level,
    )


@contextmanager
def loading(
    path: Path, provider: str, threads: int, *, check_hashes: bool = True, profile: Path | None = None
) -> Iterator[Loaded]:
    """Verify a bundle and load its graphs; see ``OnnxGPT.load`` for the arguments.

    Raises:
        BundleError: if the bundle is not as it should be; for its weights, when the block ends.
        ProviderError: if the provider or its package is not to be had.
    """
    find_device(provider)  # a misspelt name is reported before the bundle is read
    with verifying(path, check_hashes=check_hashes) as bundle:
        settings = _settings(bundle, provider, threads, profile)
        check_graph(bundle)
        ort = import_onnxruntime(settings.device)
        loaded = Loaded(bundle=bundle, pending=Background(lambda: _load_graphs(bundle, settings, ort)))
        yield loaded
        loaded.graphs()  # a caller may have forgotten to wait
        bundle.check_in_place()
