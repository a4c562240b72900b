"""``gpt-onnx export``: a model in, a checked bundle out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from gpt_onnx._paths import real_path
from gpt_onnx.bundle._names import shorten
from gpt_onnx.cli._console import note, print_tables
from gpt_onnx.cli._export_answer import describe, print_report
from gpt_onnx.cli._misuse import misuse
from gpt_onnx.cli._options import (
    Real,
    config_option,
    json_option,
    names_option,
    output_option,
    overwrite_option,
    tokenizer_option,
)
from gpt_onnx.cli._progress import progress_bars, stage_lines
from gpt_onnx.cli._streams import clean

DYNAMIC = "dynamic"


def size_or_dynamic(value: str) -> str | int:
    """Return "dynamic" or an integer of at least 1; anything else is a usage error.

    How large it may be is for the library to say.
    """
    if value == DYNAMIC:
        return DYNAMIC
    if not re.fullmatch("[0-9]{1,30}", value) or not int(value):
        raise click.BadParameter(f"{shorten(value)} is neither 'dynamic' nor an integer of at least 1.")
    return int(value)


def as_number(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Return a chosen number as an integer."""
    return None if value is None else int(value)


def default_name(source: str | None) -> str:
    """Return the bundle's name for a source: its last part, a file's without its ending, and -onnx."""
    if source is None:
        from gpt_onnx.checkpoint import find_shipped

        shipped = find_shipped()
        source = shipped.name if shipped else "gpt"
    path = real_path(source.rpartition(":")[0] if ".py:" in source else source)
    is_file = ".py:" in source or path.is_file()
    return f"{path.stem if is_file else path.name}-onnx"


@click.command("export")
@click.argument("source", required=False)
@output_option
@overwrite_option
@json_option
@click.option(
    "--seq-len",
    type=size_or_dynamic,
    metavar="dynamic|N",
    default=DYNAMIC,
    show_default=True,
    help="Any sequence length, or one frozen length (a prefill graph and a one-token graph).",
)
@click.option(
    "--batch-size",
    type=size_or_dynamic,
    metavar="dynamic|N",
    help="Any batch size, or a frozen one.  [default: dynamic; 1 where --seq-len is N]",
)
@click.option(
    "--kv-cache/--no-kv-cache",
    default=True,
    show_default=True,
    help="With a key-value cache, or plain input_ids -> logits.",
)
@click.option(
    "--target",
    type=click.Choice(["cpu", "web", "portable"]),
    default="cpu",
    show_default=True,
    help="cpu, web: GroupQueryAttention, cache in place; portable: standard operators only, also for CUDA.",
)
@click.option(
    "--opset",
    type=click.Choice(["17", "18", "19", "20", "21"]),
    callback=as_number,
    help="Version of the standard operators; portable alone has older ones than 21.  [default: 21]",
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16", "int8", "int4"]),
    default="fp32",
    show_default=True,
    help="How weights are stored; int8, int4 (smaller and faster) and fp16 (portable, web) are measured.",
)
@click.option(
    "--block-size",
    type=click.Choice(["16", "32", "64", "128", "256"]),
    callback=as_number,
    help="Integer weights that share a scale.  [default: the largest of 128, 64, 32, 16 that fits]",
)
@click.option(
    "--accuracy-level",
    type=click.Choice(["0", "4"]),
    callback=as_number,
    help="4: products round activations to int8 (fast); 0: they do not (slow).  [default: 4]",
)
@click.option(
    "--quantizer",
    type=click.Choice(["rtn", "hqq", "gptq"]),
    help="How integers are chosen; gptq reads calibration text.  [default: rtn for int8, gptq for int4]",
)
@click.option(
    "--head-precision",
    type=click.Choice(["fp32", "int8", "int4"]),
    help="The precision of head and embedding, the most sensitive weights.  [default: int8]",
)
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Text to calibrate with and to measure quality on.  [default: public addresses that ship]",
)
@click.option(
    "--max-kl",
    type=Real(min=0, min_open=True),
    metavar="X",
    help="Refuse to publish if the mean KL divergence from the fp32 model is above X.",
)
@config_option
@names_option
@tokenizer_option
@click.option(
    "--check",
    type=click.Choice(["none", "quick", "standard", "deep"]),
    default="standard",
    show_default=True,
    help="How thoroughly the graph is compared with the original before it is published.",
)
@click.option(
    "--reference",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="input_ids and logits that the original program wrote (safetensors, npz, pt), compared as well.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Say what was recognised and what it would take; write nothing.",
)
def command(source: str | None, output: Path | None, as_json: bool, dry_run: bool, **options: Any) -> None:
    """Export a GPT to a bundle, if it computes the same numbers.

    SOURCE is a folder of Hugging Face (gpt2, llama and their like), a ckpt.pt of nanoGPT, a file that a C++
    program wrote with LibTorch, a .gguf file, a state dict, our own checkpoint, or FILE.py:NAME, a
    torch.nn.Module or a function that returns one; that runs the code in FILE.py. Without SOURCE, inside a
    clone, it is the model that ships.

    \b
    gpt-onnx export ckpt.pt --dry-run
    gpt-onnx export gpt.pt --dry-run > names.toml        # where names are not known: a table to fill in
    gpt-onnx export gpt.pt --dry-run > gpt.toml          # where tensors cannot say all: questions
    gpt-onnx export gpt.pt --config gpt.toml --reference logits.npz

    Exit code 3 means that graph and model disagree; nothing is published then.
    """  # noqa: D301  # click takes the character, not the two letters, for "do not wrap"
    from gpt_onnx.export.options import options_of
    from gpt_onnx.export.user_code import code_file

    with misuse(options):
        options_of(options)
    destination = output or Path(default_name(source))
    if source is not None and (file := code_file(source)):
        note(f"Running the code in {file}.")
    (_dry_run if dry_run else _export)(source, destination, as_json, options)


def _export(source: str | None, destination: Path, as_json: bool, options: dict[str, Any]) -> None:
    with progress_bars("read") as progress:
        from gpt_onnx.export import export_bundle

        told = {"progress": progress} if progress else {}
        report = export_bundle(source, destination, **told, **options)
    if as_json:
        click.echo(json.dumps(describe(report), sort_keys=True))
    else:
        print_report(report)


def _print_template(key: str, text: str, as_json: bool, todo: str) -> None:
    """Print a file to be filled in, and on stderr what to do with it."""
    note(todo)
    click.echo(json.dumps({key: text}) if as_json else text, nl=as_json)


def _print_questions(source: str | None, as_json: bool, options: dict[str, Any]) -> bool:
    """Print the names, or else the questions, that the source leaves open; return whether there are any."""
    from gpt_onnx.checkpoint.unnamed import UnknownNamesError
    from gpt_onnx.export import ExportOptions, config_template

    try:
        template = config_template(source, ExportOptions(**options))
    except UnknownNamesError as exc:
        todo = (
            f"{source} has names of tensors that are not known: save this table in a file, put our name in "
            'for each "?" and give it with --names FILE.'
        )
        _print_template("names_template", exc.table, as_json, todo)
        return True
    if template is not None:
        todo = (
            f"{source} does not tell all of its configuration: answer the questions in this file and give it "
            "with --config FILE."
        )
        _print_template("config_template", template, as_json, todo)
    return template is not None


def _dry_run(source: str | None, destination: Path, as_json: bool, options: dict[str, Any]) -> None:
    """Print what an export would make, or the names and questions that the source leaves open."""
    with stage_lines("read"):
        from gpt_onnx.export import plan_export

        if _print_questions(source, as_json, options):
            return
        plan = plan_export(source, **options)
    if as_json:
        click.echo(json.dumps({"path": str(destination)} | plan.to_json()))
        return
    from gpt_onnx.cli._plan_table import fact_table, precision_table

    print_tables(fact_table(plan, str(destination)), precision_table(plan))
    for line in plan.notes:
        click.echo(f"Note: {clean(line)}")
