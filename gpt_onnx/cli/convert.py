"""``gpt-onnx convert``: a checkpoint in another layout, so that training can go on."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpt_onnx.cli._console import note
from gpt_onnx.cli._options import (
    FOLDER,
    config_option,
    json_option,
    names_option,
    overwrite_option,
    store_option,
    tokenizer_option,
)
from gpt_onnx.cli._progress import progress_bars
from gpt_onnx.cli._streams import clean

if TYPE_CHECKING:
    from gpt_onnx.checkpoint.convert import ConvertReport


@click.command("convert")
@click.argument("source")
@click.option("-o", "--output", type=FOLDER, metavar="DIR", required=True, help="Checkpoint to make.")
@click.option(
    "--to",
    type=click.Choice(["gpt-onnx", "huggingface"]),
    default="gpt-onnx",
    show_default=True,
    help="Our layout, or Hugging Face's gpt2 or llama, whichever the model fits.",
)
@store_option
@config_option
@names_option
@tokenizer_option
@overwrite_option
@json_option
def command(source: str, output: Path, as_json: bool, **options: Any) -> None:
    """Write a checkpoint in another layout, so that training can go on.

    SOURCE is a checkpoint of any kind that export reads; its tokenizer and generation defaults go along.

    \b
    gpt-onnx convert ckpt.pt -o my-gpt && gpt-onnx train corpus/ --init my-gpt -o better
    gpt-onnx convert my-gpt -o for-transformers --to huggingface

    A model that fits neither of Hugging Face's layouts is refused, with what does not fit.
    """  # noqa: D301  # click takes the character, not the two letters, for "do not wrap"
    with progress_bars("read") as show:
        from gpt_onnx.checkpoint.convert import convert_checkpoint

        told: dict[str, Any] = {"progress": partial(show, "write")} if show else {}
        report = convert_checkpoint(source, output, **told, **options)
    for line in report.notes:
        note(f"Note: {clean(line)}")
    click.echo(json.dumps(describe(report)) if as_json else _line(report))


def describe(report: ConvertReport) -> dict[str, Any]:
    """Return what a conversion made, for ``--json``."""
    return {
        "path": str(report.path),
        "source": report.kind,
        "layout": report.layout,
        "parameters": report.parameters,
        "store": report.store,
        "bytes": report.nbytes,
        "files": list(report.files),
        "config": report.config.to_dict(),
        "notes": list(report.notes),
    }


def _line(report: ConvertReport) -> str:
    return (
        f"{report.path}: {report.layout}, {report.parameters:,} parameters in {report.store}, "
        f"{report.nbytes:,} bytes, from a {report.kind}."
    )
