"""Which device runs a bundle: the one asked for, or an error that says what is missing. Never a fallback.

    device = find_device("cuda:1")          # or "auto", with the bundle's target
    ort = import_onnxruntime(device)        # checks the packages first, telemetry off

ONNX Runtime itself falls back to the CPU with a warning when a provider is missing, misspelt, or cannot load
its libraries; here each of these is a ProviderError.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpt_onnx._interrupts import interrupts_held
from gpt_onnx.bundle import Manifest
from gpt_onnx.errors import ProviderError

from ._arguments import shown

AUTO = "auto"
PROVIDERS: Mapping[str, str] = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
"""Each kind of device with ONNX Runtime's name for it."""
EXTRAS: Mapping[str, str] = {"cpu": "onnxruntime", "cuda": "onnxruntime-gpu"}
"""Each kind of device with the package that its extra of gpt-onnx installs."""
MADE_FOR: Mapping[str, str] = {"cuda": "cuda"}
"""Targets whose bundles are made for something else than the CPU."""

CUDA_OPTIONS: Mapping[str, str] = {"use_tf32": "0"}
"""TF32 keeps 10 bits of a float32's mantissa, a thousand times the error that a float32 bundle is held to."""

_RECORD = re.compile(r"(onnxruntime(?:_gpu)?)-([^-]+)\.dist-info", re.ASCII)
_NAME = re.compile(r"(cpu|cuda)(?::([0-9]{1,3}))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device that a session runs on."""

    kind: str
    """A key of PROVIDERS."""
    index: int = 0
    """Which card; 0 for the CPU."""

    @property
    def name(self) -> str:
        """Return "cpu" or "cuda:0"."""
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.index}"

    @property
    def provider(self) -> str:
        """Return ONNX Runtime's name of the provider."""
        return PROVIDERS[self.kind]

    @property
    def providers(self) -> list[Any]:
        """Return what InferenceSession takes; integer arithmetic on shapes stays on the CPU beside CUDA."""
        if self.kind == "cpu":
            return [self.provider]
        return [(self.provider, {"device_id": self.index, **CUDA_OPTIONS}), PROVIDERS["cpu"]]


def find_device(name: str, target: str = "cpu") -> Device:
    """Return the device that a name means; "auto" is what bundles of ``target`` are made for.

    Raises:
        ProviderError: if the name is not one of auto, cpu, cuda and cuda:N.
    """
    wanted = MADE_FOR.get(target, "cpu") if name == AUTO else name
    match = _NAME.fullmatch(wanted) if isinstance(wanted, str) else None
    if match is None or wanted.startswith("cpu:"):
        raise ProviderError(f"the provider is {shown(name)}; choose auto, cpu, cuda or cuda:N.")
    return Device(kind=match[1], index=int(match[2] or 0))


def check_suits(manifest: Manifest, device: Device) -> None:
    """Refuse a graph that the device cannot compute.

    Raises:
        ProviderError: if CUDA is asked to run GroupQueryAttention: it has none in float32, and the cache of
            such a graph is one buffer in the CPU's memory here (gpt_onnx.runtime._shared_cache).
    """
    if device.kind == "cuda" and manifest.graph.attention == "gqa":
        raise ProviderError(
            f"{manifest.name} was exported for target {manifest.target} in {manifest.precision} and cannot "
            f"run on {device.name}; export it with gpt-onnx export SOURCE --target portable, or use the cpu."
        )


def _names_in(folder: str) -> Iterator[str]:
    with contextlib.suppress(OSError):  # a zip file, or a folder that is not there
        yield from sorted(os.listdir(folder or "."))


def installed_versions(path: Iterable[str] | None = None) -> dict[str, str]:
    """Return the versions of the ONNX Runtime packages that are installed, by package.

    Pip records each in a folder NAME-VERSION.dist-info; the name says all. (``importlib.metadata`` finds the
    same and imports email, socket and zipfile for it, which takes as long as NumPy's core.)

    Args:
        path: Folders to look through; None: those that Python imports from.
    """
    found: dict[str, str] = {}
    for folder in sys.path if path is None else path:
        for match in filter(None, map(_RECORD.fullmatch, _names_in(folder))):
            found.setdefault(match[1].replace("_", "-"), match[2])
    return {package: found[package] for package in EXTRAS.values() if package in found}


def check_packages(device: Device, installed: Mapping[str, str]) -> None:
    """Refuse packages that shadow each other, and the one that lacks the provider.

    Raises:
        ProviderError: with the command that mends it.
    """
    if len(installed) > 1:
        raise ProviderError(
            "onnxruntime and onnxruntime-gpu are both installed, one over the other; mend it with "
            "pip uninstall -y onnxruntime onnxruntime-gpu && "
            f"pip install '{EXTRAS[device.kind]}=={installed[EXTRAS[device.kind]]}'."
        )
    if device.kind == "cuda" and "onnxruntime" in installed:
        raise ProviderError(
            f"{device.name} needs onnxruntime-gpu, and onnxruntime {installed['onnxruntime']} is installed, "
            "which has no CUDA; change it with pip uninstall -y onnxruntime && pip install 'gpt-onnx[cuda]'."
        )


def _load_cuda_libraries(ort: Any) -> None:
    """Load CUDA and cuDNN from the packages that pip installed, where the system has none of its own.

    What ONNX Runtime prints about a library that it lacks is dropped: the session says so, as an error.
    """
    if hasattr(ort, "preload_dlls"):  # since 1.21
        with contextlib.redirect_stdout(io.StringIO()):
            ort.preload_dlls(directory="")


def import_onnxruntime(device: Device) -> Any:
    """Return the module ``onnxruntime``, which can run on ``device``.

    Its Linux wheel opens a telemetry database under the home folder when it is imported and complains on
    stderr when it cannot: that is switched off here, before the import.

    Raises:
        ProviderError: if it is missing, installed twice, or lacks the provider.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    check_packages(device, installed_versions())
    try:
        with interrupts_held():
            ort = importlib.import_module("onnxruntime")
        available = ort.get_available_providers()
    except (ImportError, AttributeError) as exc:  # AttributeError: an empty folder that pip left behind
        raise ProviderError(
            f"{device.name} needs {EXTRAS[device.kind]}, which cannot be imported ({exc}); "
            f"install it with pip install 'gpt-onnx[{device.kind}]'."
        ) from exc
    if device.provider not in available:
        raise ProviderError(
            f"{device.name} is asked for, and onnxruntime {ort.__version__} has only {', '.join(available)}; "
            f"install it with pip install 'gpt-onnx[{device.kind}]'."
        )
    if device.kind == "cuda":
        _load_cuda_libraries(ort)
    return ort


def check_used(session: Any, device: Device) -> None:
    """Refuse a session that ONNX Runtime silently made for another device.

    Raises:
        ProviderError: if the first provider of the session is not the one asked for.
    """
    used = session.get_providers()
    if not used or used[0] != device.provider:
        raise ProviderError(
            f"{device.name} was asked for and ONNX Runtime used {', '.join(used) or 'nothing'}: a driver, "
            "or a library of CUDA or cuDNN, is missing; try pip install 'onnxruntime-gpu[cuda,cudnn]'."
        )
