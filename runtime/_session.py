"""ONNX Runtime sessions and bindings: the one place where its options are set and its errors are caught.

    session = GraphSession(path, SessionSettings(device=Device(kind="cpu"), threads=2), ort)
    binding = session.bind()
    binding.feed("input_ids", session.share(ids))      # later changes of the array are seen by the next run
    binding.fetch("logits", session.share(logits))
    binding.run()

Refused: a provider that ONNX Runtime replaced by another, and a graph that it cannot load or run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.errors import BundleError

from .providers import Device, check_used

Array = NDArray[Any]

OPTIONS: Mapping[str, int | str] = {
    # ONNX Runtime warns at each load that num_logits_to_keep is an input with a default: errors only.
    "log_severity_level": 3,
    # A GPT is a chain: no two nodes that take time can run at once.
    "inter_op_num_threads": 1,
    # Threads spin while they wait for each other within a run, which halves the time of a step, and stop when
    # it ends, so that an idle engine takes no processor time.
    "session.force_spinning_stop": "1",
}
"""What differs from ONNX Runtime's defaults in every session; docs/performance.md has what each brings, and
what others were tried. With a dot in its name it is an entry that versions which lack it ignore; without, it
is an attribute of SessionOptions."""
ELEMENT_TYPES: Mapping[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(float16)": np.dtype(np.float16),
    "tensor(double)": np.dtype(np.float64),
    "tensor(int64)": np.dtype(np.int64),
    "tensor(int32)": np.dtype(np.int32),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """How a session is made."""

    device: Device
    """Where it runs."""
    threads: int
    """Threads within an operator."""
    frozen: bool = False
    """Whether all lengths are fixed, so that ONNX Runtime may plan its memory once."""
    profile: Path | None = None
    """Prefix of a file that gets the times and the placement of each node; None: no profile."""
    qdq_accuracy_level: int | None = None
    """Accuracy level of products with weights behind DequantizeLinear; None: nothing is quantised."""


def _chosen(settings: SessionSettings) -> Iterator[tuple[str, int | str]]:
    """Yield the options that depend on the settings."""
    yield "intra_op_num_threads", settings.threads
    # The memory pattern is planned anew for each length that it has not seen: for frozen lengths only.
    yield "enable_mem_pattern", settings.frozen
    if settings.profile is not None:
        yield "enable_profiling", True
        yield "profile_file_prefix", str(settings.profile)
    if settings.qdq_accuracy_level is not None:
        # ONNX Runtime fuses DequantizeLinear and MatMul at level 4 unless it is told otherwise.
        yield "session.qdq_matmulnbits_accuracy_level", str(settings.qdq_accuracy_level)


def session_options(ort: Any, settings: SessionSettings) -> Any:
    """Return ONNX Runtime's options: OPTIONS, and those that the settings ask for."""
    options = ort.SessionOptions()
    for name, value in (*OPTIONS.items(), *_chosen(settings)):
        if "." in name:
            options.add_session_config_entry(name, value)
        else:
            setattr(options, name, value)
    return options


def _first_line(exc: BaseException) -> str:
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0]


class Binding:
    """The inputs and outputs of one kind of run, bound once and run often.

    ONNX Runtime holds no reference to a bound array's memory, so this does.
    """

    def __init__(self, session: GraphSession) -> None:
        self._session = session
        self._io = session.raw.io_binding()
        self._held: dict[str, Any] = {}

    def feed(self, name: str, value: Any) -> None:
        """Bind an OrtValue to an input, in place of the one before."""
        self._held[name] = value
        self._io.bind_ortvalue_input(name, value)

    def feed_array(self, name: str, array: Array) -> None:
        """Bind an array in the CPU's memory; repeated calls with one array cost nothing on the CPU.

        Elsewhere ONNX Runtime copies the array when it is bound, so it is bound anew each time.
        """
        held = self._held.get(name)
        if held is not None and held[0] is array and self._session.on_cpu:
            return
        value = self._session.share(array)
        self._held[name] = (array, value)
        self._io.bind_ortvalue_input(name, value)

    def fetch(self, name: str, value: Any) -> None:
        """Have an output written into an OrtValue of its shape."""
        self._held[name] = value
        self._io.bind_ortvalue_output(name, value)

    def fetch_new(self, name: str) -> None:
        """Have ONNX Runtime allocate an output on the session's device; see ``outputs``."""
        device = self._session.device
        self._io.bind_output(name, device.kind, device.index)

    def run(self) -> None:
        """Compute.

        Raises:
            BundleError: if ONNX Runtime reports an error, with its first line.
        """
        try:
            self._session.raw.run_with_iobinding(self._io)
        except Exception as exc:  # its classes share no base
            raise BundleError(
                f"{self._session.path} failed on {self._session.device.name}: {_first_line(exc)}"
            ) from exc

    def outputs(self) -> list[Any]:
        """Return the OrtValues of the outputs, in the order in which they were first bound."""
        return list(self._io.get_outputs())


class GraphSession:
    """One graph, loaded on one device.

    Raises:
        BundleError: if ONNX Runtime cannot load the graph.
        ProviderError: if it put the session on another device.
    """

    def __init__(self, path: Path, settings: SessionSettings, ort: Any) -> None:
        self.path = path
        self.device = settings.device
        self.on_cpu = settings.device.kind == "cpu"
        self.version: str = ort.__version__
        self._ort = ort
        try:
            self.raw = ort.InferenceSession(
                str(path), session_options(ort, settings), providers=self.device.providers
            )
        except Exception as exc:
            raise BundleError(
                f"{path} is refused by onnxruntime {ort.__version__}: {_first_line(exc)}"
            ) from exc
        self.raw.disable_fallback()
        check_used(self.raw, self.device)
        ports = (*self.raw.get_inputs(), *self.raw.get_overridable_initializers(), *self.raw.get_outputs())
        self.dtypes = {port.name: ELEMENT_TYPES.get(port.type) for port in ports}

    def dtype(self, name: str) -> np.dtype[Any]:
        """Return the element type of an input or output.

        Raises:
            BundleError: if the graph has no such input or output, or one of an unknown type.
        """
        dtype = self.dtypes.get(name)
        if dtype is None:
            raise BundleError(f"{self.path} has no tensor {name!r}; it has {', '.join(sorted(self.dtypes))}.")
        return dtype

    def end_profile(self) -> Path:
        """Stop recording and return the file with the profile; only where the settings asked for one."""
        return Path(self.raw.end_profiling())

    def bind(self) -> Binding:
        """Return an empty binding."""
        return Binding(self)

    def share(self, array: Array) -> Any:
        """Return an OrtValue over an array's own memory (C-contiguous, on the CPU)."""
        assert array.flags.c_contiguous
        return self._ort.OrtValue.ortvalue_from_numpy(array)

    def upload(self, array: Array) -> Any:
        """Return an OrtValue on the session's device; on the CPU it is over the array's own memory."""
        if self.on_cpu:
            return self.share(array)
        return self._ort.OrtValue.ortvalue_from_numpy(array, self.device.kind, self.device.index)
