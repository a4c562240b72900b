"""Any torch.nn.Module as the reference: float64 made out of a program that was written for float32.

The float64 form is a copy of the module whose weights are float64, run so that what the code makes on the way
(``torch.arange(..., dtype=torch.float32)``, ``x.float()``, a default dtype) is float64 as well. Where that
raises though float32 works, the float32 module is the reference, and what one unit in the last place of
every weight changes stands for the cost of float32.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gpt_onnx.errors import ExportError

from .cases import SEED, Ids
from .norms_in_turn import NormsInTurn
from .nudged import nudged
from .original import BesideItsNumbers
from .reference import FLOAT32, PLAIN, Draft, Others, Refused, Units, evaluating, in_dtype
from .repeats import check_repeats
from .rounding import NOTHING, Rounding
from .tolerance import FloatArray, RowErrors
from .truth import Truth

PROBE = 11  # tokens of the sequence that shows whether a module is causal
REPEATED = 4  # sequences that are computed twice, to see that the program computes the same
SAME = {"float64": 1e-9, "float32": 1e-5}  # relative difference of equal computations in another shape


def logits_in(result: object) -> Tensor:
    """Find the logits in what a module returned: a tensor, a tuple, a dict or a ModelOutput.

    Raises:
        ExportError: if there are none.
    """
    if isinstance(result, Tensor):
        return result
    if isinstance(result, Mapping):
        found = result["logits"] if "logits" in result else next(iter(result.values()), None)
        return logits_in(found)
    if (logits := getattr(result, "logits", None)) is not None:
        return logits_in(logits)
    for part in result if isinstance(result, tuple | list) else ():
        if isinstance(part, Tensor) and part.is_floating_point() and part.dim() >= 2:
            return part
    raise ExportError(
        f"the module returned a {type(result).__name__} without logits; "
        "return a tensor (B, S, V), or a tuple or dict that holds one."
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """Logits of one sequence, one row a position from ``first``."""

    first: int
    values: Tensor

    @classmethod
    def of(cls, logits: Tensor, length: int) -> _Rows:
        """Read (1, S, V), or (1, 1, V) and (1, V) of the last position alone."""
        rows = logits[None] if logits.dim() == 2 else logits
        if rows.dim() != 3 or rows.shape[0] != 1 or rows.shape[1] not in (1, length):
            raise ExportError(
                f"the module returned logits of shape {tuple(logits.shape)} for (1, {length}) ids; "
                f"(1, {length}, V), or (1, V) of the last position, was expected."
            )
        return cls(length - rows.shape[1], rows[0])


class _InFloat64(TorchFunctionMode):
    """Turn each request for float32 into one for float64."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        wider = {torch.float32: torch.float64}
        swapped = tuple(wider.get(arg, arg) if isinstance(arg, torch.dtype) else arg for arg in args)
        named = {
            name: wider.get(value, value) if isinstance(value, torch.dtype) else value
            for name, value in (kwargs or {}).items()
        }
        return func(*swapped, **named) if func is not Tensor.float else args[0].double()


@contextlib.contextmanager
def _widened() -> Iterator[None]:
    """Make float64 the dtype of whatever is made without one, for as long as it takes."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _InFloat64():
            yield
    finally:
        torch.set_default_dtype(before)


def _nudged(module: nn.Module) -> nn.Module:
    """Return a copy whose every weight is one unit in the last place up or down."""
    copied = copy.deepcopy(module)
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for parameter in copied.parameters():
            if parameter.is_floating_point():
                sign = torch.randint(0, 2, parameter.shape, generator=generator).to(parameter) * 2 - 1
                parameter.mul_(1 + sign * torch.finfo(parameter.dtype).eps)
    return copied


def _copied(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as exc:  # whatever a module's own parts raise
        raise ExportError(
            f"the module cannot be copied, and its copy in float64 is what the graph is compared with: {exc}."
        ) from exc


class ModuleReference(BesideItsNumbers):
    """A module of anybody's, each length run on its own: nothing is assumed of it.

    It is the program itself, and makes its angles as that does: units that need another are the usual ones.

    Raises:
        ExportError: if it cannot be copied, or does not compute the same again.
    """

    cost = FLOAT32
    is_original = True
    padded_vocab_size: int | None = None
    shares_prefixes = False

    def __init__(self, module: nn.Module, *, name: str | None = None) -> None:
        self.name = name or type(module).__name__
        self._f32 = in_dtype(module, torch.float32)
        tensors = [*module.parameters(), *module.buffers()]
        self._device = tensors[0].device if tensors else torch.device("cpu")
        self._f64: nn.Module | None = _copied(module).to(torch.float64)
        self._nudged: nn.Module | None = None
        self._rounding: Rounding = NOTHING
        self._causal: bool | None = None
        self._repeated = 0

    @property
    def dtype(self) -> str:
        """See Reference; known after the first sequence."""
        return "float32" if self._f64 is None else "float64"

    def with_weights(self, others: Others) -> ModuleReference:
        """See Reference; the module is copied."""
        copied = _copied(self._f32)
        with torch.no_grad():
            for name in others.names:
                copied.get_parameter(name).copy_(others.read(name))
        return self._like(copied, others.rounding)

    def _like(self, module: nn.Module, rounding: Rounding) -> ModuleReference:
        reference = type(self)(module, name=self.name)
        reference._rounding, reference._repeated = rounding, self._repeated
        return reference

    def _run(self, module: nn.Module, ids: Ids) -> _Rows:
        batch = torch.tensor([ids], dtype=torch.int64, device=self._device)
        with evaluating(module):
            result = module(batch)
        return _Rows.of(logits_in(result).detach().cpu(), len(ids))

    def _run_float32(self, ids: Ids) -> _Rows:
        try:
            rows = self._run(self._f32, ids)
            self._see_it_repeat(ids, rows)
            return rows
        except ExportError:
            raise
        except Exception as exc:  # a module may raise anything to say that a sequence is too long
            raise Refused(f"{type(exc).__name__}: {exc}") from exc

    def _see_it_repeat(self, ids: Ids, rows: _Rows) -> None:
        """Compute the first sequences twice.

        Raises:
            ExportError: if the program computes something else.
        """
        if self._repeated < REPEATED:
            self._repeated += 1
            check_repeats(rows.values, self._run(self._f32, ids).values)

    def _run_float64(self, ids: Ids) -> _Rows | None:
        if self._f64 is None:
            return None
        try:
            with _widened():
                return self._run(self._f64, ids)
        except Exception:  # float32 took the same ids, so float64 is what it cannot do
            self._f64 = None
            return None

    def vocabulary(self, length: int) -> int:
        """See Reference."""
        return int(self.compute((0,) * length).logits().shape[-1])

    def compute_all(self, sequences: Sequence[Ids], units: Units = PLAIN) -> list[Truth]:
        """See Reference."""
        compute = self.compute_careful if units.beside else self.compute
        return [compute(ids, units) for ids in sequences]

    def compute(self, ids: Ids, units: Units = PLAIN) -> Truth:
        """Return the truth of one sequence."""
        f32 = self._run_float32(ids)
        best, beside = self._run_float64(ids), self._f32
        if best is None:
            best, beside = f32, self._neighbour()
        rounding = self._rounding.exact if units.exact_products else self._rounding
        plain = beside is self._f32 and rounding is NOTHING
        other = f32 if plain else self._run_rounding(beside, ids, rounding)
        r64 = best.values.to(torch.float64).numpy()
        errors = RowErrors.measure(other.values.to(torch.float32).numpy(), r64)
        return Truth(ids=ids, first=best.first, hidden=r64, head=_as_it_is, errors=errors)

    def _run_rounding(self, module: nn.Module, ids: Ids, rounding: Rounding) -> _Rows:
        with rounding.during(module):
            return self._run(module, ids)

    def compute_careful(self, ids: Ids, units: Units = PLAIN) -> Truth:
        """Return the same in units of programs beside this one, too.

        Where float32 stands for float64 there is nothing to be more careful with.
        """
        truth = self.compute(ids, units)
        for module in () if self._f64 is None else nudged(self._f32, units.beside):
            with NormsInTurn():
                truth = truth.with_largest_errors(self._like(module, self._rounding).compute(ids, units))
        return truth

    def _neighbour(self) -> nn.Module:
        if self._nudged is None:
            self._nudged = _nudged(self._f32)
        return self._nudged

    @property
    def causal(self) -> bool:
        """See Reference; found out by computing a sequence and the beginning of it."""
        if self._causal is None:
            self._causal = self._looks_causal()
        return self._causal

    def _looks_causal(self) -> bool:
        ids = tuple(index % 2 for index in range(PROBE))
        try:
            whole, part = self.compute(ids), self.compute(ids[: PROBE // 2])
        except Refused:
            return False
        if whole.first or part.first:
            return False
        expected, found = part.logits(), whole.logits(slice(PROBE // 2))
        scale = max(float(np.abs(expected).max()), 1e-30)
        return bool(np.abs(found - expected).max() <= SAME[self.dtype] * scale)

    def greedy(self, prompt: Ids, count: int, draft: Draft | None = None) -> Ids:
        """See Reference; the whole sequence is computed anew for every token, whatever is guessed."""
        ids = prompt
        with contextlib.suppress(Refused):
            while len(ids) < len(prompt) + count:
                ids = (*ids, int(np.argmax(self.compute(ids).logits([len(ids) - 1])[0])))
        return ids[len(prompt) :]


def _as_it_is(rows: FloatArray) -> FloatArray:
    return rows
