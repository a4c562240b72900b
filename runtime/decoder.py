"""A decoder: sequences of tokens that grow, with the state that makes growing them cheap.

    decoder = engine.decoder(batch_size=2)
    logits = decoder.append([[5, 6, 7], [8]])      # unequal numbers of tokens; one array of logits a row
    logits = decoder.append([[1], [2]])            # one step
    decoder.rewind([3, 1])                         # forget the last step
    decoder.keep_rows([1])                         # go on with the second row alone

There is one subclass for each form of graph; this class holds what they share: checks before and after, and
that a failed or interrupted ``append`` leaves the decoder as it was. ``extend`` is ``append`` without what a
loop need not pay for again at each token; it is how the engine generates.

Letters in shapes: B rows, S new tokens, V vocabulary, K key and value heads, T longest row, D head size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.bundle import GraphInfo, ModelInfo
from gpt_onnx.errors import InputError

from ._arguments import counted, shown
from ._checks import IdRows, Ids, TrainedLength, as_ids, check_finite, check_room, is_row
from ._session import GraphSession

Array = NDArray[Any]

WORK_PER_RUN = 2.5e10
"""Multiplications that one run may take where a prompt can be cut: a fraction of a second to a second on two
cores. Between runs Ctrl-C is delivered, and the memory of a run is bounded."""
BLOCK_LENGTHS = (16, 512)
"""The fewest and the most tokens of one run of a prompt that is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """The loaded graphs of a bundle and what decoders need to know of them."""

    sessions: Mapping[str, GraphSession]
    """Role to session."""
    graph: GraphInfo
    model: ModelInfo
    trained_length: TrainedLength
    """Shared by all decoders of an engine, so that it warns once."""
    rounds_activations: bool = False
    """Whether products see activations rounded to int8, which makes small differences of sums larger."""

    @property
    def main(self) -> GraphSession:
        """Return the only session, or the one that computes single tokens."""
        return self.sessions.get("decode") or self.sessions["model"]

    @property
    def limit(self) -> int | None:
        """Return the longest sequence that can be computed; None: any."""
        limits = [limit for limit in (self.model.position_limit, self.graph.seq_len) if limit is not None]
        return min(limits, default=None)

    @property
    def computes_rows_alone(self) -> bool:
        """Return whether prompts of a batch are computed one after another, in slices of the cache."""
        form = (self.graph.layout, self.graph.attention, self.graph.batch_size)
        return form == ("dynamic", "gqa", None)

    def block_length(self, total_length: int) -> int:
        """Return how many tokens of a prompt to compute at once in sequences of ``total_length``."""
        attention = self.model.cache_elements_per_token * total_length
        fewest, most = BLOCK_LENGTHS
        tokens = int(WORK_PER_RUN / max(self.model.parameters + attention, 1))
        return min(max(tokens // fewest * fewest, fewest), most)


def _integers(what: str, values: Any) -> Ids:
    """Return numbers of rows or tokens as (N,) int64.

    Raises:
        InputError: if they are no list of integers.
    """
    try:
        array = np.asarray(values) if is_row(values) else None
    except ValueError:  # ragged
        array = None
    if array is None or array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(f"{what} {shown(values)}; give a list of integers.")
    return array.astype(np.int64)


class Decoder(ABC):
    """Rows of tokens that grow by ``append``; see the module."""

    def __init__(self, graphs: Graphs, batch_size: int) -> None:
        frozen = graphs.graph.batch_size
        if frozen is not None and batch_size > frozen:
            raise InputError(
                f"the batch has {counted(batch_size, 'row')}; the graph is frozen to {frozen}, and takes no "
                "more."
            )
        self.limit = graphs.limit
        """The longest row that can be computed; None: any."""
        self._graphs = graphs
        self._lengths: Ids = np.zeros(batch_size, np.int64)

    @property
    def takes_guesses(self) -> bool:
        """Whether tokens may be tried: several cost one run, and forgetting the last of them costs little."""
        return False

    @property
    def origin(self) -> Path:
        """The graph that computes the logits, for errors that name it."""
        return self._graphs.main.path

    @property
    def trained_length(self) -> int | None:
        """The length beyond which a warning is given; None: any, or it was given."""
        return self._graphs.trained_length.left

    @property
    def batch_size(self) -> int:
        """The number of rows."""
        return int(self._lengths.size)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of tokens in each row."""
        return tuple(self._lengths.tolist())

    def append(self, rows: IdRows, keep: str = "last") -> list[Array]:
        """Append tokens to each row and return the logits that follow them.

        Args:
            rows: For each row its new tokens; some may be empty, not all.
            keep: "last": the logits after each row's last new token. "all": after each new token.

        Returns:
            For each row float32 logits: (V,) for "last", (S, V) for "all"; (0, V) for a row without new
            tokens.

        Raises:
            InputError: if an id, the number of rows or a length is out of range.
            BundleError: if the graph fails or returns NaN; the decoder is as it was before.
        """
        new, before = self._checked(rows, keep), self._lengths.copy()
        logits = self.extend(new, keep_all=keep == "all")
        try:
            check_finite(logits, self.origin)
        except BaseException:
            self._restore(before)
            raise
        copies = [np.array(row) if row.base is not None else row for row in logits]
        return copies if keep == "all" else [row[0] if len(row) else row for row in copies]

    def extend(self, new: Sequence[Ids], keep_all: bool = False) -> Sequence[Array]:
        """Append tokens that are known to be ids of the vocabulary, at least one of them.

        Returns:
            For each row float32 logits: (1, V) after its last token, or (S, V) after each; (0, V) for a row
            without new tokens. They may be the decoder's own memory, which the next call overwrites, and are
            not checked: who chooses from them sees whether they are finite.

        Raises:
            InputError: if a row would be longer than the limit.
            BundleError: if the graph fails; the decoder is as it was before.
        """
        before = self._lengths.copy()
        wanted = [length + ids.size for length, ids in zip(before.tolist(), new, strict=True)]
        check_room(wanted, self.limit)
        self._graphs.trained_length.note(max(wanted))
        try:
            return self._append(new, keep_all)
        except BaseException:
            self._restore(before)
            raise

    def step(self, token: int) -> Array:
        """Append one token, known to be of the vocabulary, to the only row; see ``extend``.

        Returns:
            float32 logits (V,), which the next call may overwrite.
        """
        [logits] = self.extend([np.array([token], np.int64)])
        last: Array = logits[0]
        return last

    def rewind(self, lengths: Sequence[int]) -> None:
        """Forget the last tokens of each row, down to the given lengths.

        Raises:
            InputError: if a length is negative or above the row's.
        """
        wanted = _integers("rewind to", lengths)
        if wanted.shape != self._lengths.shape:
            rows = counted(self.batch_size, "integer")
            raise InputError(f"rewind to {shown(lengths)}; give {rows}, one a row.")
        if (wanted < 0).any() or (wanted > self._lengths).any():
            raise InputError(f"rewind to {wanted.tolist()}; the rows have {list(self.lengths)} tokens.")
        self._truncate(wanted)

    def keep_rows(self, indices: Sequence[int]) -> None:
        """Go on with some rows, in the given order.

        Raises:
            InputError: if there is none, or one that does not exist or comes twice.
        """
        kept = _integers("keep_rows of", indices)
        rows = kept.tolist()
        if not rows or len(set(rows)) != len(rows) or not set(rows) <= set(range(self.batch_size)):
            raise InputError(f"rows {rows} cannot be kept of {self.batch_size}; name each once.")
        if rows != list(range(self.batch_size)):
            self._keep_rows(kept)

    @abstractmethod
    def keys_and_values(self) -> Iterator[tuple[Array, Array]]:
        """Yield for each layer copies of keys and values, (B, K, T, D), zeros beyond a row's length.

        A graph without a cache has none.
        """

    def _checked(self, rows: IdRows, keep: str) -> list[Ids]:
        if not isinstance(keep, str) or keep not in ("last", "all"):
            raise InputError(f"keep is {shown(keep)}; it must be 'last' or 'all'.")
        if not is_row(rows):
            raise InputError(f"rows is {shown(rows)}; give a list of token ids for each row.")
        if len(rows) != self.batch_size:
            raise InputError(f"{counted(len(rows), 'row')} given; the decoder has {self.batch_size}.")
        vocab_size = self._graphs.model.vocab_size
        new = [as_ids(row, vocab_size, f"row {index}") for index, row in enumerate(rows)]
        if not any(ids.size for ids in new):
            raise InputError("no row has a new token; give at least one.")
        return new

    @abstractmethod
    def _append(self, new: Sequence[Ids], keep_all: bool) -> Sequence[Array]:
        """Compute and update the state; return for each row float32 (S or 1, V)."""

    @abstractmethod
    def _truncate(self, lengths: Ids) -> None:
        """Bring the state to ``lengths``, none above those before the last ``_append`` began or ended."""

    def _restore(self, lengths: Ids) -> None:
        """As ``_truncate``, after an ``_append`` that failed: anything may stand behind ``lengths``."""
        self._truncate(lengths)

    @abstractmethod
    def _keep_rows(self, indices: Ids) -> None:
        """Keep some rows in a new order."""
