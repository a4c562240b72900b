"""Text in: documents from files and folders, and the choice of those that validate."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpt_onnx._user_text import without_mark
from gpt_onnx.errors import InputError

TEXT_PATTERN = "*.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Documents, in the order of their files' names."""

    documents: tuple[str, ...]
    """One file each."""

    @property
    def byte_count(self) -> int:
        """Bytes of UTF-8."""
        return sum(len(document.encode()) for document in self.documents)

    @property
    def sha256(self) -> str:
        """Hash of the documents' texts in their order."""
        digest = hashlib.sha256()
        for document in self.documents:
            digest.update(hashlib.sha256(document.encode()).digest())
        return digest.hexdigest()


def read_corpus(paths: Sequence[Path]) -> Corpus:
    """Read files, and all ``.txt`` files in and below folders; empty files are passed over.

    Raises:
        InputError: if a path is missing, a file is not UTF-8 text, or there is no text at all.
    """
    documents = tuple(document for file in _files(paths) if (document := _read(file)))
    if not documents:
        names = ", ".join(str(path) for path in paths)
        raise InputError(
            f"{names} holds no text; name files, or folders with {TEXT_PATTERN} files that are not empty."
        )
    return Corpus(documents=documents)


def _files(paths: Iterable[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise InputError(
                f"the text {path} does not exist; name a file or a folder of {TEXT_PATTERN} files."
            )
        files.extend(sorted(path.rglob(TEXT_PATTERN)) if path.is_dir() else [path])
    return files


def _read(file: Path) -> str:
    try:
        return without_mark(file.read_bytes().decode("utf-8"))
    except UnicodeDecodeError as exc:
        raise InputError(
            f"{file} is not UTF-8 text (byte {exc.start}); convert it, or leave it out."
        ) from exc
    except OSError as exc:
        raise InputError(f"{file} could not be read: {exc.strerror or exc}.") from exc


def hold_out(corpus: Corpus, fraction: float, seed: int) -> tuple[Corpus, Corpus]:
    """Split into training and validation documents, at least one each, by a seeded choice.

    Raises:
        InputError: if there are fewer than two documents.
    """
    count = len(corpus.documents)
    if count < 2:
        raise InputError("the corpus is one document, which cannot be split; give a --validation text.")
    chosen = set(random.Random(seed).sample(range(count), min(count - 1, max(1, round(fraction * count)))))
    parts = [
        tuple(doc for i, doc in enumerate(corpus.documents) if (i in chosen) is held)
        for held in (False, True)
    ]
    return Corpus(documents=parts[0]), Corpus(documents=parts[1])
