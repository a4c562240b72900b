"""What was generated from one prompt, and the stream of its pieces.

stream = CompletionStream(engine.stream(ids, 50), ids, TextStream(tokenizer, context=ids))
for piece in stream:
    print(piece, end="")
stream.completion.finish_reason
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ._text import TextStream

if TYPE_CHECKING:
    from ._speculation import Speculation
    from .engine import TokenStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What was generated from one prompt."""

    prompt_ids: tuple[int, ...]
    """The prompt as the engine got it."""
    ids: tuple[int, ...]
    """The new tokens; a stop string's own tokens are among them, the token that ended the text is not."""
    text: str
    """The new text up to a stop string; empty for a bundle without a tokenizer."""
    finish_reason: str
    """"eos", "stop", "length", "context" or "cancelled"."""
    speculation: Speculation | None = field(default=None, compare=False)
    """What became of guesses; None: none were made."""


class CompletionStream(Iterator[str]):
    """The pieces of a completion as they come, none of them empty; ``close()`` ends it early.

    Without a tokenizer there are no pieces; iterate over it all the same and read ``completion``.
    """

    def __init__(self, tokens: TokenStream, prompt_ids: Sequence[int], text: TextStream | None) -> None:
        self.first_token_at: float | None = None
        """``time.perf_counter()`` when the first new token was there."""
        self._tokens = tokens
        self._prompt_ids = tuple(prompt_ids)
        self._text = text
        self._pieces: list[str] = []
        self._steps = self._run()

    def __next__(self) -> str:
        return next(self._steps)

    def _run(self) -> Iterator[str]:
        for token_id in self._tokens:
            self.first_token_at = self.first_token_at or time.perf_counter()
            if self._text is None:
                continue
            yield from self._shown(self._text.push(token_id))
            if self._text.stopped:
                self._tokens.close()
                return
        yield from self._rest()

    def _shown(self, piece: str) -> Iterator[str]:
        if piece:
            self._pieces.append(piece)
            yield piece

    def _rest(self) -> Iterator[str]:
        return self._shown(self._text.flush() if self._text is not None else "")

    def close(self) -> str:
        """Stop generating; return the text that was kept back, in case it would become a stop string."""
        self._tokens.close()
        return "".join(self._rest())

    @property
    def completion(self) -> Completion:
        """What was generated so far; "cancelled" while it has not ended."""
        generation = self._tokens.generation
        stopped = self._text is not None and self._text.stopped
        return Completion(
            prompt_ids=self._prompt_ids,
            ids=generation.ids,
            text="".join(self._pieces),
            finish_reason="stop" if stopped else generation.finish_reason,
            speculation=generation.speculation,
        )
