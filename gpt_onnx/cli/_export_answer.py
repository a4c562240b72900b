"""What ``gpt-onnx export`` says of the bundle that it made."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from gpt_onnx.cli._console import print_tables, table_console
from gpt_onnx.cli._streams import clean
from gpt_onnx.original import original_words

if TYPE_CHECKING:
    from gpt_onnx.export import BundleReport

MB = 1e6


def describe(report: BundleReport) -> dict[str, Any]:
    """Return what an export made, for ``--json``."""
    manifest = report.manifest
    return {
        "path": str(report.path),
        "name": manifest.name,
        "target": manifest.target,
        "layout": manifest.graph.layout,
        "precision": manifest.precision,
        "parameters": manifest.model.parameters,
        "bytes": report.nbytes,
        "payload_bytes": report.payload_bytes,
        "checked": manifest.checked,
        "compared_with_original": manifest.compared_with_original,
        "notes": list(report.notes),
        "quantization": manifest.quantization and dataclasses.asdict(manifest.quantization),
        "quality": report.quality.to_json() if report.quality else None,
        "decode_tokens_per_s": report.decode_tokens_per_s,
        "parity": report.gate.to_json() if report.gate else None,
    }


def print_report(report: BundleReport) -> None:
    """Print the gate's table, what the user should know, and one line that says what was made."""
    from gpt_onnx.cli._parity_table import parity_table

    manifest = report.manifest
    if report.gate is not None:
        print_tables(parity_table(report.gate.rows))
    if report.quality is not None:
        _print_quality(report)
    for line in report.notes:
        click.echo(f"Note: {clean(line)}")
    if not manifest.compared_with_original:
        words = original_words(checked=manifest.checked, compared=False)
        click.echo(f"Note: it was {words}.")
    checked = "checked" if manifest.checked else "NOT checked"
    click.echo(
        f"{report.path}: {manifest.model.parameters:,} parameters, {report.nbytes:,} bytes, {checked} "
        f"(target {manifest.target}, {manifest.graph.layout}, {manifest.precision})."
    )
    if report.quality is not None:
        click.echo(_last_line(report))


def folded(names: Iterable[str]) -> Iterator[str]:
    """Yield names of weights; those of one part are one: ``ln_f.{bias,weight}``."""
    parts: dict[str, list[str]] = {}
    for name in names:
        part, _, leaf = name.rpartition(".")
        parts.setdefault(part, []).append(leaf)
    for part, leaves in parts.items():
        last = leaves[0] if len(leaves) == 1 else f"{{{','.join(leaves)}}}"
        yield f"{part}.{last}" if part else last


def _print_quality(report: BundleReport) -> None:
    """Print how far the integer weights are from float32, and what stayed float32."""
    from gpt_onnx.cli._quality_table import comparison_table

    assert report.quality is not None
    print_tables(comparison_table(report.quality.comparison, "fp32"))
    click.echo(f"Measured on {report.quality.comparison.tokens:,} tokens: {report.quality.text}.")
    if (info := report.manifest.quantization) is not None:
        names = ", ".join(clean(name) for name in folded(info.float_weights))
        click.echo(textwrap.fill(f"Kept in fp32: {names}.", table_console().width, break_on_hyphens=False))


def _last_line(report: BundleReport) -> str:
    """Return sizes, speed and distance from float32 in one line."""
    assert report.quality is not None
    whole = 4 * report.manifest.model.parameters
    return (
        f"{report.payload_bytes / MB:,.1f} MB of weights instead of {whole / MB:,.1f}, "
        f"{report.decode_tokens_per_s:,.0f} tokens/s on this machine, {report.quality.summary()}."
    )
