"""``gpt-onnx verify``: is a bundle whole, and does it compute the right numbers here?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpt_onnx.cli._console import note, plain_warnings, print_tables
from gpt_onnx.cli._options import (
    bundle_argument,
    config_option,
    json_option,
    names_option,
    provider_option,
    refuse_without_source,
    threads_option,
)
from gpt_onnx.cli._progress import progress_bars
from gpt_onnx.errors import ParityError
from gpt_onnx.original import original_words

if TYPE_CHECKING:
    from gpt_onnx.bundle import Manifest
    from gpt_onnx.export.gate import GateReport
    from gpt_onnx.runtime.verify import Progress, VerifyReport

LEVELS = ("quick", "standard", "deep")


@contextmanager
def _bar(what: str) -> Iterator[Progress | None]:
    """Give a function that shows how much of one step is done."""
    with progress_bars(what, transient=True) as show:
        yield None if show is None else partial(show, what)


def _verify(bundle: Path, files_only: bool, provider: str, threads: int | None) -> VerifyReport:
    from gpt_onnx.runtime.verify import verify_bundle, verify_files

    with _bar("verify") as progress:
        if files_only:
            return verify_files(bundle)
        return verify_bundle(bundle, provider, threads, progress=progress)


def _compare(bundle: Path, source: str, **options: Any) -> GateReport:
    from gpt_onnx.export.gate import gate_against

    if ".py:" in source:
        note(f"Running the code in {source.rpartition(':')[0]}.")
    with _bar("compare") as progress:
        return gate_against(bundle, source, progress=progress, **options)


def caveats(manifest: Manifest) -> list[str]:
    """Return what a reader of the result must know about how the bundle was made."""
    if not manifest.checked:
        return ["This bundle was made with --check none: it was never compared with its model."]
    words = original_words(checked=True, compared=manifest.compared_with_original)
    return [] if manifest.compared_with_original else [f"It was {words}."]


def _print(report: VerifyReport, gate: GateReport | None) -> None:
    if report.passed:
        click.echo(report.summary())
    if gate is not None:
        from gpt_onnx.cli._parity_table import parity_table

        print_tables(parity_table(gate.rows))
    for line in caveats(report.manifest):
        click.echo(line)


def _report_file(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Refuse a place where no report may be written, before minutes of computing."""
    if value is not None:
        from gpt_onnx.cli._html_report import REPORT
        from gpt_onnx.cli._result_file import check_result_file

        check_result_file(value, REPORT)
    return value


def _write_page(page: Path, found: dict[str, Any], report: VerifyReport, gate: GateReport | None) -> None:
    """Write the HTML page, whether the result is good or not; ``_report_file`` has seen the name."""
    from gpt_onnx.cli._html_report import REPORT, html_report
    from gpt_onnx.cli._result_file import write_result_file

    verdict = " ".join([report.summary(), *([gate.summary()] if gate is not None else [])])
    text = html_report(found, report.manifest, verdict, caveats(report.manifest))
    write_result_file(page, REPORT, lambda file: file.write_bytes(text.encode()))


def _fail_if_different(report: VerifyReport, gate: GateReport | None) -> None:
    report.raise_if_failed()
    if gate is not None and not gate.passed:
        raise ParityError(gate.summary())


@click.command(name="verify")
@bundle_argument
@click.option(
    "--files-only",
    is_flag=True,
    help="Check hashes, the graphs' form and that no file contradicts another, and compute nothing.",
)
@click.option(
    "--against",
    metavar="SOURCE",
    help="Compare with this source as well, as export does; needs gpt-onnx[export].",
)
@config_option
@names_option
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    help="How thoroughly to compare with SOURCE.  [default: standard]",
)
@click.option(
    "--report",
    "page",
    type=click.Path(path_type=Path),
    callback=_report_file,
    metavar="FILE.html",
    help="Write the result as one HTML page as well.",
)
@provider_option
@threads_option
@json_option
def command(
    bundle: Path,
    files_only: bool,
    against: str | None,
    config: Path | None,
    names: Path | None,
    level: str | None,
    page: Path | None,
    provider: str,
    threads: int | None,
    as_json: bool,
) -> None:
    """Check BUNDLE on this machine: hashes, graphs, and the numbers they compute.

    The bundle carries logits that its model computed in float64; they are computed again here, on this
    provider. PyTorch is not needed for that, but it is for --against.

    \b
    gpt-onnx verify bundle
    gpt-onnx verify bundle --against models/sotu

    Exit code 1 means that the bundle is damaged, 3 that the numbers differ.
    """  # noqa: D301  # click takes the character, not the two letters, for "do not wrap"
    if files_only and against is not None:
        raise click.UsageError("--files-only computes nothing and --against compares numbers; leave one out.")
    if against is None:
        refuse_without_source(config=config, names=names, level=level)
    gate: GateReport | None = None
    with plain_warnings():
        report = _verify(bundle, files_only, provider, threads)
        if against is not None:
            options = {"config": config, "names": names, "level": level or "standard"}
            gate = _compare(bundle, against, provider=provider, threads=threads, **options)
    found: dict[str, Any] = report.to_json() | {"against": None if gate is None else gate.to_json()}
    if page is not None:
        _write_page(page, found, report, gate)
    if as_json:
        click.echo(json.dumps(found, sort_keys=True))
    else:
        _print(report, gate)
    _fail_if_different(report, gate)
