"""Gate a bundle that exists against a source: ``gpt-onnx verify BUNDLE --against SOURCE``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .gate import Progress, run_gate
from .quantized import reference_for
from .report import GateReport

if TYPE_CHECKING:
    from torch import nn


def gate_against(
    bundle: Path,
    source: str | Path | nn.Module | None,
    *,
    config: Path | None = None,
    names: Path | None = None,
    level: str = "standard",
    provider: str = "auto",
    threads: int | None = None,
    texts: Sequence[Sequence[int]] | None = None,
    reference_file: Path | None = None,
    progress: Progress | None = None,
) -> GateReport:
    """Compare a bundle with what it was made from, or with anything else that should compute the same.

    Args:
        bundle: The bundle.
        source: A checkpoint, ``FILE.py:NAME``, a module, or None for the model that ships.
        config: A configuration of a source that does not tell its own.
        names: A table of the source's names of tensors.
        level: See ``run_gate``, as are the others.
        provider: "auto" is what the bundle was made for.
        threads: Threads within an operator.
        texts: Ids of real text.
        reference_file: Numbers that the original program wrote.
        progress: See Progress.

    Raises:
        InputError: if the vocabularies of bundle and source differ.
        GptOnnxError: if the bundle, the source or the provider cannot be used.
    """
    from gpt_onnx.export.options import ExportOptions
    from gpt_onnx.export.source import resolve  # which imports this package

    options = ExportOptions(tokenizer="none", config=config, names=names)
    reference = reference_for(resolve(source, options), bundle)
    return run_gate(
        bundle,
        reference,
        level=level,
        provider=provider,
        threads=threads,
        texts=texts,
        reference_file=reference_file,
        progress=progress,
    )
