"""Check a bundle on this machine, without PyTorch: its files, its graphs, and the numbers that they compute.

    report = verify_bundle("bundle")
    report.passed, report.summary()

The bundle carries logits that the original program computed in float64, with the largest error that the gate
accepted; they are computed again here, on this provider, and held to the same bounds. A bundle made without
the gate has none, and then only files and graphs are checked.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.bundle import Bundle, check_evidence, check_graph, open_bundle
from gpt_onnx.errors import BundleError

from ._checks import LengthWarning, as_ids
from ._client_files import check_client_files
from ._reference import FILE_NAME, Reference, StoredCase, StoredGreedy, read_reference
from ._verify_report import CaseResult, GreedyResult, VerifyReport
from .engine import OnnxGPT
from .providers import AUTO
from .sampling import Sampling

__all__ = ["CaseResult", "GreedyResult", "VerifyReport", "verify_bundle", "verify_files"]

Progress = Callable[[int, int], None]
Compute = Callable[[OnnxGPT, StoredCase], NDArray[np.float32]]
BESIDE = 64
"""Tokens of the longest sequence that is computed in a batch as well."""
STEPS = 8
"""Tokens that are decoded one by one there."""


def _part(error: float, bound: float) -> float:
    """Return an error as a part of its bound; infinite where either makes no sense."""
    if not (math.isfinite(error) and math.isfinite(bound)):
        return math.inf
    if error == 0:
        return 0.0
    return error / bound if bound > 0 else math.inf


def _logits_at(engine: OnnxGPT, case: StoredCase) -> NDArray[np.float32]:
    """Return the logits of a case (n, V).

    A cache of any length is filled from position to position, which needs the memory of one row of logits;
    other graphs compute the whole sequence. Where the last position alone is stored, no other is asked for:
    there are graphs that have no other.
    """
    only_last = case.positions.tolist() == [case.input_ids.size - 1]
    if engine.bundle.manifest.graph.layout != "dynamic" and not only_last:
        logits: NDArray[np.float32] = engine.logits([case.input_ids])[0]
        return logits[case.positions]
    decoder = engine.decoder(1, case.input_ids.size)
    starts = [0, *(case.positions[:-1] + 1)]
    pieces = [case.input_ids[start : end + 1] for start, end in zip(starts, case.positions, strict=True)]
    return np.stack([decoder.append([piece])[0] for piece in pieces])


def _second_row(engine: OnnxGPT, case: StoredCase) -> NDArray[np.float32]:
    """Return the logits of the last position (1, V), computed as the second row of a batch of two.

    A cache of any length is decoded token by token at the end, as a batch is served, from rows of unequal
    length; other graphs compute rows of one length.
    """
    ids, other, decoder = case.input_ids, case.input_ids[::-1], engine.decoder(2, case.input_ids.size)
    if engine.bundle.manifest.graph.layout != "dynamic":
        return decoder.append([other, ids])[1][np.newaxis]
    prompt = max(1, ids.size - STEPS)
    rows = decoder.append([other[: max(1, prompt // 2)], ids[:prompt]])
    for token in ids[prompt:]:
        rows = decoder.append([other[:1], np.array([token])])
    return rows[1][np.newaxis]


def _in_a_batch(engine: OnnxGPT, cases: Sequence[StoredCase]) -> Iterator[tuple[StoredCase, Compute]]:
    """Yield what shows whether a row is computed as it is alone: the last position of one sequence.

    Graphs that are frozen to one row have no batch.
    """
    if engine.bundle.manifest.graph.batch_size == 1:
        return
    short = [case for case in cases if case.input_ids.size <= BESIDE] or cases[:1]
    case = max(short, key=lambda case: case.input_ids.size)
    if case.positions[-1] == case.input_ids.size - 1:
        name, last = f"{case.name} in a batch", slice(-1, None)
        yield replace(case, name=name, positions=case.positions[last], logits=case.logits[last]), _second_row


def _verify_case(engine: OnnxGPT, case: StoredCase, compute: Compute) -> CaseResult:
    found = compute(engine, case)
    if case.vocab_ids is not None:
        found = found[:, as_ids(case.vocab_ids, engine.vocab_size, f"{case.name}.vocab_ids")]
    if found.shape != case.logits.shape:
        raise BundleError(f"{case.name} stores logits {case.logits.shape}; {found.shape} were computed.")
    error = np.abs(found.astype(np.float64) - case.logits)
    rms = math.sqrt(float(np.square(error).mean()))
    return CaseResult(
        name=case.name,
        tokens=case.input_ids.size,
        logits=error.size,
        max_ratio=_part(float(error.max()), case.bounds[0]),
        rms_ratio=_part(rms, case.bounds[1]),
    )


def _verify_greedy(engine: OnnxGPT, stored: StoredGreedy) -> GreedyResult:
    """Generate again; where the two best were closer than twice the tolerance, either is right.

    After the first near tie that went the other way the texts differ, and nothing more can be compared.
    """
    count = stored.tokens.size
    generation = engine.generate([stored.prompt], count, Sampling(temperature=0.0), ignore_eos=True)[0]
    same = np.zeros(count, np.bool_)
    found = np.array(generation.ids, np.int64)
    same[: found.size] = found == stored.tokens[: found.size]
    if same.all():
        return GreedyResult(tokens=count, compared=count, differs_at=None)
    first = int(np.flatnonzero(~same)[0])
    near_tie = first < found.size and stored.margins[first] <= 2 * stored.tolerance
    return GreedyResult(tokens=count, compared=first, differs_at=None if near_tie else first)


def _check_others(bundle: Bundle) -> Reference | None:
    """Check the files that loading a graph does not read.

    Returns:
        What the original program computed; None where it was not asked.

    Raises:
        BundleError: for the first that is not as it should be.
    """
    check_evidence(bundle)
    check_client_files(bundle)
    stored = FILE_NAME in bundle.manifest.files
    return read_reference(bundle.file(FILE_NAME)) if stored else None


def verify_files(path: str | Path) -> VerifyReport:
    """Check hashes, graphs, tokenizer, evidence and the files for other clients, and compute nothing.

    Raises:
        BundleError: if a file is not as it should be, or contradicts another.
    """
    bundle = open_bundle(path)
    check_graph(bundle)
    _check_others(bundle)
    return VerifyReport(path=bundle.path, manifest=bundle.manifest, provider=None, runtime_version=None)


def verify_bundle(
    path: str | Path,
    provider: str = AUTO,
    threads: int | None = None,
    *,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check all that ``verify_files`` does, and compute the stored logits of a bundle again.

    Args:
        path: The bundle's folder.
        provider: Where to compute; see OnnxGPT.load.
        threads: Threads within an operator; None: the cores that this process may use.
        progress: Told how many of how many sequences are done.

    Raises:
        BundleError: if a file is not as it should be, or contradicts another.
        ProviderError: if the provider is not to be had.
    """
    engine = OnnxGPT.load(path, provider, threads)
    bundle = engine.bundle
    reference = _check_others(bundle)
    report = VerifyReport(
        path=bundle.path,
        manifest=bundle.manifest,
        provider=engine.provider,
        runtime_version=engine.runtime_version,
    )
    if reference is None:
        return report
    cases = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LengthWarning)
        alone = ((case, _logits_at) for case in reference.cases)
        plan = [*alone, *_in_a_batch(engine, reference.cases)]
        for index, (case, compute) in enumerate(plan):
            cases.append(_verify_case(engine, case, compute))
            if progress is not None:
                progress(index + 1, len(plan))
        greedy = _verify_greedy(engine, reference.greedy) if reference.greedy else None
    return VerifyReport(
        path=report.path,
        manifest=report.manifest,
        provider=report.provider,
        runtime_version=report.runtime_version,
        cases=tuple(cases),
        greedy=greedy,
    )
