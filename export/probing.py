"""What a module tells when it is run: its vocabulary, which positions come out, how long it goes.

And whether it is causal, and whether its logits are numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gpt_onnx.config import SYNONYMS
from gpt_onnx.errors import ExportError

from .gate.foreign import PROBE, SAME, logits_in
from .gate.repeats import check_repeats
from .user_code import told, user_code

LONGEST_PROBE = 4096  # tokens: a module that takes so many is taken to have no limit
REPEATS = 3  # runs that must give what the first gave
SHORTEST_PROBE = 2  # tokens: with one, logits of all positions and of the last alone look the same


class LogitsOnly(nn.Module):
    """The module reduced to input_ids -> logits (B, S, V), or (B, 1, V) of the last position alone."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return the logits, with a dim for positions."""
        logits = logits_in(self.module(input_ids))
        return logits if logits.dim() == 3 else logits.unsqueeze(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was found out about a module."""

    vocab_size: int
    """The last dim of its logits."""
    last_only: bool
    """Whether it returns the logits of the last position alone."""
    position_limit: int | None
    """The longest sequence that it computes; None where no limit was found."""
    causal: bool
    """Whether the logits of a token depend on nothing after it, as far as a short sequence tells."""
    faults: str | None
    """At which rows of the vocabulary logits are not finite; None where all are."""


def probe(wrapped: LogitsOnly, context_length: int | None, frozen: int | None, batch: int = 1) -> Findings:
    """Run a module on short and long sequences.

    Args:
        wrapped: The module, in evaluation mode.
        context_length: The length that the module or its configuration names.
        frozen: The one length that will be exported; None for any.
        batch: How many sequences at once.

    Raises:
        ExportError: if it does not map ids (B, S) to logits of float32, or not always to the same.
    """
    runs = functools.partial(_runs, wrapped, batch)
    if frozen and not runs(frozen) and runs(SHORTEST_PROBE):
        frozen = None  # too long: what the limit is will be told
    length = frozen or SHORTEST_PROBE
    logits = _described(wrapped, length, batch, None if frozen else context_length)
    limit = frozen or _limit(runs, context_length)
    last_only = length > 1 and logits.shape[1] == 1
    _check_repeats(wrapped, frozen or min(PROBE, limit or PROBE), batch, logits.shape[2])
    return Findings(
        vocab_size=logits.shape[2],
        last_only=last_only,
        position_limit=limit,
        causal=not last_only and _looks_causal(wrapped, batch, frozen, limit, logits.shape[2]),
        faults=_not_finite(logits),
    )


def named_context(module: nn.Module) -> int | None:
    """Return the context length that the module or its config names, by any of the usual names."""
    names = ("context_length", *SYNONYMS["context_length"], "max_len", "max_length")
    for holder in (module, getattr(module, "config", None), getattr(module, "cfg", None)):
        for name in names:
            value = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
            if type(value) is int and value > 1:
                return value
    return None


def _run(wrapped: LogitsOnly, ids: Tensor) -> Tensor:
    with user_code():
        result: Tensor = wrapped(ids)
    batch, length = ids.shape
    if result.dtype != torch.float32:
        raise ExportError(
            f"the module made logits of {str(result.dtype).removeprefix('torch.')}; return what its head "
            "computes, in float32."
        )
    if result.dim() != 3 or result.shape[0] != batch or result.shape[1] not in (1, length):
        raise ExportError(
            f"the module made logits of the shape {tuple(result.shape)} from ids of ({batch}, {length}); "
            f"({batch}, {length}, vocab_size) was expected."
        )
    return result.detach()


def _logits(wrapped: LogitsOnly, length: int, batch: int) -> Tensor:
    return _run(wrapped, torch.zeros((batch, length), dtype=torch.int64))


def _check_repeats(wrapped: LogitsOnly, length: int, batch: int, vocab_size: int) -> None:
    """See that a sequence of various ids has the same logits each time.

    Raises:
        ExportError: if it has others.
    """
    ids = (torch.arange(batch * length) % vocab_size).reshape(batch, length)
    try:
        first, *others = (_run(wrapped, ids) for _ in range(1 + REPEATS))
    except Exception:  # as for _runs
        return
    for again in others:
        check_repeats(first, again)


def _not_finite(logits: Tensor) -> str | None:
    """Say at which rows of the vocabulary logits (B, S, V) are NaN or infinite."""
    rows = torch.nonzero(~torch.isfinite(logits).all(dim=0).all(dim=0)).flatten().tolist()
    if not rows:
        return None
    span = f"row {rows[0]}" if len(rows) == 1 else f"{len(rows)} rows from {rows[0]} to {rows[-1]}"
    return f"{span} of {logits.shape[2]}"


def _same(found: Tensor, expected: Tensor) -> bool:
    """Whether logits are equal but for the order in which sums were taken."""
    scale = max(float(expected.abs().max()), 1e-30)
    return bool((found - expected).abs().max() <= SAME["float32"] * scale)


def _looks_causal(
    wrapped: LogitsOnly, batch: int, frozen: int | None, limit: int | None, vocab_size: int
) -> bool:
    """Whether the beginning of a sequence has the same logits with another end, and without any."""
    length = frozen or min(PROBE, limit or PROBE)
    head = length // 2
    if not head:
        return True  # nothing comes after the only token
    ids = torch.zeros((batch, length), dtype=torch.int64)
    other = ids.clone()
    other[:, head:] = min(1, vocab_size - 1)
    try:
        expected = _run(wrapped, ids)[:, :head]
        found = [_run(wrapped, other)[:, :head]]
        if frozen is None:
            found.append(_run(wrapped, ids[:, :head]))
    except Exception:  # as for _runs
        return False
    return all(_same(logits, expected) for logits in found)


def _described(wrapped: LogitsOnly, length: int, batch: int, context_length: int | None) -> Tensor:
    """Return the logits of the first probe, or say why there are none."""
    try:
        return _logits(wrapped, length, batch)
    except ExportError:
        raise
    except Exception as exc:
        if length == SHORTEST_PROBE and _runs(wrapped, batch, 1):
            raise ExportError(
                f"the module computes one token at once and not {length} ({told(exc)}); "
                "freeze the length with --seq-len 1."
            ) from exc
        if context_length is not None and _runs(wrapped, batch, context_length):
            raise ExportError(
                f"the module computes {context_length} tokens at once and not {length} ({told(exc)}); "
                "cut what it adds to the length of its ids, or freeze the length with --seq-len."
            ) from exc
        raise ExportError(
            f"the module cannot compute ids of the shape ({batch}, {length}): {told(exc)}; "
            "its forward must take int64 ids (B, S) alone."
        ) from exc


def _runs(wrapped: LogitsOnly, batch: int, length: int) -> bool:
    try:
        _logits(wrapped, length, batch)
    except Exception:  # a module may raise anything to say that a sequence is too long
        return False
    return True


def _limit(runs: Callable[[int], bool], context_length: int | None) -> int | None:
    """Return the longest sequence that the module computes; None where no limit was found."""
    if context_length is not None and runs(context_length):
        if not runs(context_length + 1):
            return context_length
        return _bisect(runs, context_length, 2 * context_length)
    works = SHORTEST_PROBE
    while works < LONGEST_PROBE:
        if not runs(2 * works):
            return _bisect(runs, works, 2 * works)
        works *= 2
    return None


def _bisect(runs: Callable[[int], bool], works: int, fails: int) -> int | None:
    """Return the largest length that runs, from one that does up to one that may not; None if that does."""
    if runs(fails):
        return None
    while fails - works > 1:
        middle = (works + fails) // 2
        works, fails = (middle, fails) if runs(middle) else (works, middle)
    return works
