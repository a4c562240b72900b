"""The engine: token ids in, logits or token ids out. Text is above it (gpt_onnx.runtime.text).

    engine = OnnxGPT.load("bundle")
    engine.logits([[5, 6, 7]])                                        # (1, 3, V)
    engine.generate([[5, 6, 7], [8]], max_new_tokens=20)              # a Generation for each prompt
    for token in engine.stream([5, 6, 7], max_new_tokens=20): ...

Refused: a bundle that is not as its manifest says, ids outside the vocabulary, empty prompts, sequences
beyond the positions or the frozen length. Warned of once: sequences beyond the length of training.

Ctrl-C is delivered between the runs of ONNX Runtime: between two tokens, and in a long prompt between blocks
of tokens that take about a second or less; only a graph without a cache, or of frozen length, computes a
prompt in one run. The engine stays usable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.bundle import Bundle
from gpt_onnx.errors import BundleError, InputError

from ._arguments import as_integer, as_path
from ._checks import IdBatch, IdRow, IdRows, as_batch, as_mask
from ._decoders import make_decoder
from ._loading import loading
from ._request import GenerateOptions, Request, make_request
from ._rows import Generation, Row, start_rows
from ._threads import thread_count
from .decoder import Decoder, Graphs
from .generation import TokenStream, run
from .generation_config import read_generation_defaults
from .providers import AUTO
from .sampling import Sampling

__all__ = ["Generation", "OnnxGPT", "TokenStream"]

ROOM_AT_FIRST = 1024  # new tokens that the cache has room for before it grows
MAX_ROWS = 1 << 16  # of a decoder
MAX_CAPACITY = 1 << 24  # tokens a row that a cache can be made for at once
_DEFAULT_SAMPLING = Sampling()


class OnnxGPT:
    """A loaded bundle; see the module. Make one with ``load``."""

    def __init__(
        self,
        bundle: Bundle,
        graphs: Graphs,
        threads: int,
        *,
        check_hashes: bool = True,
        profiled: bool = False,
    ) -> None:
        self.bundle = bundle
        self.threads = threads
        self.provider = graphs.main.device.name
        """Where it runs: "cpu" or "cuda:0"."""
        self.runtime_version = graphs.main.version
        """The version of ONNX Runtime."""
        self.vocab_size = graphs.model.vocab_size
        """Ids are below it."""
        self.limit = graphs.limit
        """The longest sequence that can be computed: learned positions or a frozen length; None: any."""
        defaults = read_generation_defaults(
            bundle.path / "generation_config.json", vocab_size=graphs.model.vocab_size
        )
        self.eos_ids = frozenset(defaults.eos_ids)
        self._check_hashes = check_hashes
        self._profiled = profiled
        self._path = bundle.path.absolute()  # the working directory may be another one later
        self._trained_length = graphs.trained_length
        self._loaded: Graphs | None = graphs

    @classmethod
    def load(
        cls,
        path: str | Path,
        provider: str = AUTO,
        threads: int | None = None,
        *,
        check_hashes: bool = True,
        profile: Path | None = None,
    ) -> OnnxGPT:
        """Verify a bundle and load its graphs.

        Args:
            path: The bundle's folder.
            provider: "auto": what the bundle was made for; "cpu", "cuda" or "cuda:N": that, or an error.
            threads: Threads within an operator, at most 64 or four a core; None: the cores that this process
                may use.
            check_hashes: Whether to hash every file first; names and sizes are always checked.
            profile: Prefix of the files in which ONNX Runtime records the placement of nodes; None: no files.

        Raises:
            InputError: if an argument is none of these.
            BundleError: if the bundle is not as it should be.
            ProviderError: if the provider or its package is not to be had.
        """
        path, count = as_path("path", path), thread_count(threads)
        with loading(path, provider, count, check_hashes=check_hashes, profile=profile) as loaded:
            graphs = loaded.graphs()
        profiled = profile is not None
        return cls(loaded.bundle, graphs, count, check_hashes=check_hashes, profiled=profiled)

    def unload(self) -> None:
        """Give the memory of the graphs back; whatever needs them next loads the bundle again.

        It is verified again, too: a bundle that is another one by then is a BundleError. Decoders and
        streams that are on their way keep what they use.

        Raises:
            InputError: if a profile is recorded, which would be lost.
        """
        if self._profiled:
            raise InputError("the engine records a profile; end it first, with end_profiles.")
        self._loaded = None

    @property
    def _graphs(self) -> Graphs:
        if self._loaded is None:
            self._loaded = self._load_again()
        return self._loaded

    def _load_again(self) -> Graphs:
        path = self._path
        with loading(path, self.provider, self.threads, check_hashes=self._check_hashes) as loaded:
            graphs = loaded.graphs()
        if loaded.bundle.manifest != self.bundle.manifest:
            raise BundleError(f"{path} is another bundle than when it was loaded; load it anew.")
        return replace(graphs, trained_length=self._trained_length)  # which warns once

    def decoder(self, batch_size: int = 1, capacity: int | None = None) -> Decoder:
        """Return rows that grow, all empty at first.

        Args:
            batch_size: The number of rows.
            capacity: Tokens a row to make room for at once; the cache grows by itself all the same.

        Raises:
            InputError: if a number is out of range, a graph of frozen batch size has fewer rows, or the
                memory does not suffice.
        """
        rows = as_integer("batch_size", batch_size, least=1, most=MAX_ROWS)
        room = None if capacity is None else as_integer("capacity", capacity, most=MAX_CAPACITY)
        try:
            return make_decoder(self._graphs, rows, room)
        except MemoryError as exc:
            raise InputError(
                f"a cache of batch_size {rows} and capacity {room} does not fit into memory; ask for less."
            ) from exc

    def logits(self, input_ids: IdBatch, attention_mask: Any = None) -> NDArray[np.float32]:
        """Return the logits after each token: float32 (B, S, V).

        Args:
            input_ids: Rows of token ids, (B, S); rows of unequal length are taken as padded on the right.
            attention_mask: 1 where a token counts, (B, S); None: all do. Padding may be on either side: rows
                are packed before they are computed, and positions count the tokens that count. Logits at
                padded positions are zeros.

        Raises:
            InputError: if an id is outside the vocabulary, a row is empty or too long, or a shape is wrong.
        """
        rows = as_batch(input_ids, self.vocab_size, "row")
        width = max(row.size for row in rows)
        mask = np.array([np.arange(width) < row.size for row in rows])
        if attention_mask is not None:
            mask &= as_mask(attention_mask, mask.shape)
        logits = np.zeros((*mask.shape, self.vocab_size), np.float32)
        real = np.flatnonzero(mask.any(axis=1))
        alone = width > 1 and self._graphs.computes_rows_alone
        for group in self._groups(real, 1 if alone else MAX_ROWS):
            packed = [rows[row][mask[row, : rows[row].size]] for row in group]
            self._fill(logits, mask, group, packed)
        return logits

    def _fill(
        self, logits: NDArray[np.float32], mask: NDArray[np.bool_], group: Sequence[int], packed: IdRows
    ) -> None:
        """Compute some rows of logits (B, S, V); nothing else of it outlives the call."""
        decoder = self.decoder(len(group), max(len(ids) for ids in packed))
        for row, values in zip(group, decoder.append(packed, keep="all"), strict=True):
            logits[row, mask[row]] = values

    def generate(
        self,
        prompts: IdBatch,
        max_new_tokens: int,
        sampling: Sampling = _DEFAULT_SAMPLING,
        **options: Unpack[GenerateOptions],
    ) -> list[Generation]:
        """Generate from one or more prompts at once, of any lengths.

        Args:
            prompts: Rows of token ids; one flat list is one prompt.
            max_new_tokens: At most so many new tokens a row; 0 gives empty generations.
            sampling: How tokens are chosen.
            **options: See GenerateOptions.

        Returns:
            For each prompt its new ids and the reason why they end.

        Raises:
            InputError: if a prompt or an option is out of range.
            BundleError: if the graph fails or returns NaN.
        """
        ids = as_batch(prompts, self.vocab_size)
        request = make_request(self._graphs, self.eos_ids, max_new_tokens, sampling, options)
        rows = start_rows(ids, request, options.get("generator"))
        for group in self._groups(range(len(rows))):
            together = [rows[index] for index in group]
            for _ in run(together, self._decoder_for(together, request), request):
                pass
        return [row.result() for row in rows]

    def stream(
        self,
        prompt_ids: IdRow,
        max_new_tokens: int,
        sampling: Sampling = _DEFAULT_SAMPLING,
        **options: Unpack[GenerateOptions],
    ) -> TokenStream:
        """Return the tokens that ``generate`` gives for one prompt, as they come.

        The arguments are those of ``generate`` and are checked at once, not at the first token.
        """
        ids = as_batch([prompt_ids], self.vocab_size)
        request = make_request(self._graphs, self.eos_ids, max_new_tokens, sampling, options)
        rows = start_rows(ids, request, options.get("generator"))
        return TokenStream(rows[0], run(rows, self._decoder_for(rows, request), request))

    def end_profiles(self) -> list[Path]:
        """Stop recording and return the profile of each graph; only after ``load`` with ``profile``."""
        self._profiled = False
        return [session.end_profile() for session in self._graphs.sessions.values()]

    def _groups(self, rows: Sequence[int] | NDArray[np.int64], most: int = MAX_ROWS) -> list[list[int]]:
        """Cut rows into batches of at most so many that the graph can take at once."""
        most = min(most, self._graphs.graph.batch_size or MAX_ROWS)
        return [[int(row) for row in rows[start : start + most]] for start in range(0, len(rows), most)]

    def _decoder_for(self, rows: Sequence[Row], request: Request) -> Callable[[int], Decoder]:
        capacity = max(len(row.pending) for row in rows) + min(request.max_new_tokens, ROOM_AT_FIRST)
        return lambda batch_size: self.decoder(batch_size, capacity)
