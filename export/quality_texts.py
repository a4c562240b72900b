"""Which text a quantised export is calibrated with, and which one its quality is measured on.

    texts = read_texts(source.tokenizer, vocab_size, options.calibration, calibrates=True)
    texts.calibration, texts.quality                                # tokens, none of them in both

Without a file of the user's they are the excerpts in export/texts; of a file, the first tokens calibrate and
those after them measure. A model without a tokenizer, or with one that cannot express the excerpts, gets
random ids where no file is given, and the record says so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.bundle._evidence import RANDOM_IDS
from gpt_onnx.checkpoint import TokenizerFiles
from gpt_onnx.errors import ConfigError, InputError
from gpt_onnx.runtime.quality.texts import NUMPY_MAGIC, decoded, ids_in, open_tokens
from gpt_onnx.runtime.quality.windows import Tokens, at_most
from gpt_onnx.runtime.tokenizer import Tokenizer, load_tokenizer

Ids = NDArray[np.int64]

MEASURED = 20_480
"""Tokens to be predicted, one more than which is read: nothing comes before the first."""
CALIBRATED = 32_768
"""Tokens that a quantiser sees."""
FEWEST_CALIBRATED = 8_192
"""Of a short file of the user's."""
MOST_PER_LETTER = 4
"""Tokens that a letter can become: one for each of its bytes."""
EXCERPTS = Path(__file__).with_name("texts")
SEED = 20_480


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Tokens of two texts, or of two parts of one."""

    calibration: Tokens
    quality: Tokens
    name: str
    """What quality is measured on, for the record: no path."""
    prefix: tuple[int, ...] = ()
    """What the tokenizer puts before every text."""

    @property
    def name_of_calibration(self) -> str:
        """Return what the other part is, for a message."""
        return f"{len(self.calibration):,} tokens ({self.name})"


def _loaded(files: TokenizerFiles) -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(files.definition, encoding="utf-8")
        return load_tokenizer(path)


def _joined(chunks: Iterable[Tokens]) -> Tokens:
    joined = Tokens(np.zeros(0, np.int64), np.zeros(0, np.int64))
    for chunk in chunks:
        joined = joined.followed_by(chunk)
    return joined


def _read(path: Path, tokenizer: Tokenizer | None, vocab_size: int, most: int) -> tuple[Tokens, bool]:
    """Return the first tokens of a file, and whether it is text."""
    with open_tokens(path, tokenizer, vocab_size) as found:
        return _joined(at_most(found.chunks, most)), found.is_text


def _refuse_short(path: Path, tokens: str, needed: int) -> NoReturn:
    raise ConfigError(
        f"{path} has {tokens} and calibration with it needs at least {needed:,} tokens; give a longer text, "
        "or none for the one that ships."
    )


def _needed(calibrates: bool) -> int:
    """Return how many tokens a file of the user's has at least."""
    return MEASURED + 1 + calibrates * FEWEST_CALIBRATED


def check_file(path: Path, *, calibrates: bool) -> None:
    """Refuse a file of the user's that cannot do, before a model is loaded that could count its tokens.

    Args:
        path: The file.
        calibrates: As for ``read_texts``.

    Raises:
        ConfigError: if it is too short whatever the tokenizer is.
        InputError: if it is neither UTF-8 text nor ids.
    """
    needed, letters = _needed(calibrates), 0
    with path.open("rb") as stream:
        if stream.read(len(NUMPY_MAGIC)) == NUMPY_MAGIC:
            if (count := ids_in(path).size) < needed:
                _refuse_short(path, f"{count:,} ids", needed)
            return
        stream.seek(0)
        for text in decoded(stream, str(path)):
            letters += len(text)
            if letters >= needed:
                return
    if MOST_PER_LETTER * letters < needed:
        _refuse_short(path, f"{letters:,} letters", needed)


def _of_file(path: Path, tokenizer: Tokenizer | None, vocab_size: int, calibrates: bool) -> Texts:
    """Take both from a file of the user's.

    Raises:
        ConfigError: if it is too short.
        InputError: if it is neither UTF-8 text nor ids.
    """
    tokens, is_text = _read(path, tokenizer, vocab_size, CALIBRATED + MEASURED + 1)
    if len(tokens) < _needed(calibrates):
        _refuse_short(path, f"{len(tokens):,} tokens", _needed(calibrates))
    cut = len(tokens) - MEASURED - 1
    prefix = tokenizer.prefix if tokenizer is not None and is_text else ()
    return Texts(calibration=tokens[:cut], quality=tokens[cut:], name=path.name, prefix=prefix)


def _of_excerpts(tokenizer: Tokenizer, vocab_size: int) -> Texts:
    calibration, _ = _read(EXCERPTS / "calibration.txt", tokenizer, vocab_size, CALIBRATED)
    quality, _ = _read(EXCERPTS / "quality.txt", tokenizer, vocab_size, MEASURED + 1)
    name = "State of the Union addresses, 2010 to 2021"
    return Texts(calibration=calibration, quality=quality, name=name, prefix=tokenizer.prefix)


def _of_chance(vocab_size: int, why: str) -> Texts:
    generator = np.random.default_rng(SEED)
    calibration, quality = (
        Tokens(generator.integers(0, vocab_size, count), None) for count in (CALIBRATED, MEASURED + 1)
    )
    return Texts(calibration=calibration, quality=quality, name=f"{RANDOM_IDS}: {why}")


def read_texts(
    files: TokenizerFiles | None, vocab_size: int, calibration: Path | None, *, calibrates: bool = False
) -> Texts:
    """Read what an export calibrates with and is measured on.

    Args:
        files: The model's tokenizer.
        vocab_size: Of the model.
        calibration: The user's own text (UTF-8) or ids (.npy); None: the excerpts that ship.
        calibrates: Whether there must be enough for a quantiser that is calibrated, too.

    Raises:
        ConfigError: if the user's text is too short.
        InputError: if it is neither UTF-8 text nor ids, or there is no tokenizer to read it with.
    """
    tokenizer = None if files is None else _loaded(files)
    if calibration is not None:
        return _of_file(calibration, tokenizer, vocab_size, calibrates)
    if tokenizer is None:
        return _of_chance(vocab_size, "there is no tokenizer")
    try:
        return _of_excerpts(tokenizer, vocab_size)
    except InputError:
        return _of_chance(vocab_size, "the tokenizer cannot express the text that ships")


def calibration_sequences(texts: Texts, length: int) -> list[Ids]:
    """Return the calibration tokens in sequences of one length, each with the tokenizer's own before it.

    Args:
        texts: Of ``read_texts``.
        length: Of a sequence; what is left over at the end is not used.

    Raises:
        ConfigError: if there is not one sequence.
    """
    prefix = np.asarray(texts.prefix, np.int64)
    size = length - prefix.size
    count = len(texts.calibration) // size if size > 0 else 0
    if count == 0:
        raise ConfigError(
            f"{len(texts.calibration)} tokens of calibration text make no sequence of {length}; give a "
            "longer text."
        )
    rows = texts.calibration.ids[: count * size].reshape(count, size)
    return [np.concatenate([prefix, row]) for row in rows]
