r"""Text from token ids, piece by piece: no character is split, and no part of a stop string is shown.

    stream = TextStream(tokenizer, context=prompt_ids, stop=["\n\n"])
    for token_id in ids:
        print(stream.push(token_id), end="")
        if stream.stopped:
            break
    print(stream.flush())

Whatever the tokens' bounds, the pieces joined are the whole decoded text up to the first stop string: the one
that is complete first, and among those complete at the same character the longest.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from gpt_onnx.errors import InputError

if TYPE_CHECKING:
    from .tokenizer import Tokenizer

MAX_CONTEXT = 64  # ids; the text of a token depends on its near neighbours at most

_REPLACEMENT = "\ufffd"
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


def byte_of_character() -> dict[str, int]:
    """Return the byte that each character of a byte-level vocabulary stands for (GPT-2's table).

    Printable bytes stand for themselves; the others are moved, in order, to 256 and above.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + place): byte for place, byte in enumerate(moved)})
    return table


class Detokenizer(Protocol):
    """Turns ids into text as far as it is settled."""

    def push(self, token_id: int) -> str:
        """Take one id and return the text that no later id can change."""

    def flush(self) -> str:
        """Return the rest, once there are no more ids."""


class ByteDetokenizer:
    """For byte-level vocabularies: bytes are kept back until they are a whole character."""

    def __init__(self, tokenizer: Tokenizer, context: Iterable[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._bytes = byte_of_character()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for token_id in context:  # a context may end within a character
            self.push(token_id)

    def push(self, token_id: int) -> str:
        """Take one id and return the text that no later id can change."""
        token = self._tokenizer.token(token_id)
        if token is None or token_id in self._tokenizer.control_ids:
            return ""
        try:
            data = bytes(self._bytes[character] for character in token)
        except KeyError:  # an added token is written as it is
            data = token.encode("utf-8")
        return self._decoder.decode(data)

    def flush(self) -> str:
        """Return a replacement character for bytes that never became a character, or nothing."""
        return self._decoder.decode(b"", final=True)


class WholeDetokenizer:
    """For all other vocabularies: decodes everything again and returns what was added."""

    def __init__(self, tokenizer: Tokenizer, context: Iterable[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._ids = list(context)[-MAX_CONTEXT:]
        self._shown = len(tokenizer.decode(self._ids))

    def push(self, token_id: int) -> str:
        """Take one id and return the text that no later id can change."""
        token = self._tokenizer.token(token_id)
        if token is None or token_id in self._tokenizer.control_ids:
            return ""
        self._ids.append(token_id)
        if _BYTE_TOKEN.fullmatch(token):  # a later byte may make the whole run of bytes invalid
            return ""
        return self._show(self._tokenizer.decode(self._ids).rstrip(_REPLACEMENT))

    def flush(self) -> str:
        """Return what was kept back."""
        return self._show(self._tokenizer.decode(self._ids))

    def _show(self, text: str) -> str:
        piece = text[self._shown :]
        self._shown += len(piece)
        return piece


def detokenizer(tokenizer: Tokenizer, context: Iterable[int] = ()) -> Detokenizer:
    """Return the detokenizer that fits a tokenizer; the text of ``context`` is taken as already shown."""
    kind = ByteDetokenizer if tokenizer.byte_level else WholeDetokenizer
    return kind(tokenizer, context)


class StopStrings:
    """Cuts a text at the first stop string, and keeps back what may yet become one.

    Raises:
        InputError: if a stop string is empty.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        stop = (stop,) if isinstance(stop, str) else tuple(stop)
        if "" in stop:
            raise InputError(
                "a stop string is empty and would stop before the first character; give some text."
            )
        self._stop = tuple(dict.fromkeys(stop))
        self._kept = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """Take a piece of text and return what can be shown; nothing more once ``stopped``."""
        if self.stopped:
            return ""
        text = self._kept + text
        found = [(at + len(stop), at) for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._kept = True, ""
            return text[: min(found)[1]]
        kept = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._kept = text[len(text) - kept :]
        return text[: len(text) - kept]

    def flush(self) -> str:
        """Return what was kept back: the text has ended without becoming a stop string."""
        kept, self._kept = self._kept, ""
        return kept


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of ``text`` with which ``stop`` begins but is not complete."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


class TextStream:
    """Ids in, text out: a detokenizer, then the stop strings."""

    def __init__(
        self, tokenizer: Tokenizer, *, context: Iterable[int] = (), stop: Sequence[str] = ()
    ) -> None:
        self._detokenizer = detokenizer(tokenizer, context)
        self._stop = StopStrings(stop)

    @property
    def stopped(self) -> bool:
        """Whether a stop string was reached."""
        return self._stop.stopped

    def push(self, token_id: int) -> str:
        """Take one id and return the text that can be shown."""
        return self._stop.push(self._detokenizer.push(token_id))

    def flush(self) -> str:
        """Return what was kept back, once there are no more ids; a stop string may still be found in it."""
        return self._stop.push(self._detokenizer.flush()) + self._stop.flush()
