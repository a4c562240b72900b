"""``gpt-onnx train``: a checkpoint from text."""

from __future__ import annotations

import dataclasses
import json
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpt_onnx.cli._console import INTERRUPTED, cancel_request, is_quiet, note
from gpt_onnx.cli._misuse import misuse
from gpt_onnx.cli._options import (
    FOLDER,
    Integer,
    Real,
    json_option,
    seed_option,
    store_option,
    threads_option,
)
from gpt_onnx.cli._progress import Show, stage_lines

if TYPE_CHECKING:
    from gpt_onnx.train import TrainProgress, TrainReport

POSITIVE = Integer(min=1)
ABOVE_0 = Real(min=0, min_open=True)
FRACTION = Real(0, 1)


@contextmanager
def _progress_display() -> Iterator[Callable[[TrainProgress], None]]:
    """Show a bar on a terminal; elsewhere a line on stderr for each validation, after a sign of life."""
    if is_quiet() or not sys.stderr.isatty():
        with stage_lines("prepare") as lines:
            yield partial(_note, lines)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("training", total=None)

        def show(progress: TrainProgress) -> None:
            if progress.bits_per_byte is not None:
                bar.console.print(_validation_line(progress))
            description = f"loss {progress.loss:.3f}, {progress.tokens_per_s:,.0f} tokens/s"
            bar.update(task, completed=progress.step, total=progress.total_steps, description=description)

        yield show


def _validation_line(progress: TrainProgress) -> str:
    return (
        f"step {progress.step}/{progress.total_steps}: training loss {progress.loss:.4f}, "
        f"validation loss {progress.validation_loss:.4f}, {progress.bits_per_byte:.4f} bits per byte, "
        f"{progress.tokens_per_s:,.0f} tokens/s"
    )


def _note(lines: Show | None, progress: TrainProgress) -> None:
    if lines is not None and progress.step == 1:
        lines("train", progress.step, progress.total_steps)
    if progress.bits_per_byte is not None:
        note(_validation_line(progress))


def _random_seed() -> int:
    seed = secrets.randbelow(2**32)
    note(f"seed: {seed}")
    return seed


def _print_report(report: TrainReport, output: Path, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"output": str(output), **dataclasses.asdict(report)}))
        return
    click.echo(
        f"{output}: {report.parameters:,} parameters, "
        f"{report.tokens_seen:,} tokens seen in {report.seconds:,.0f} s, "
        f"best at step {report.best_step} of {report.steps}, {report.bits_per_byte:.4f} bits per byte "
        f"on {report.validation_bytes:,} bytes of validation text"
    )


@click.command(name="train")
@click.argument("corpus", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=FOLDER, metavar="DIR", required=True, help="Checkpoint to make.")
@click.option(
    "--config", default="sotu", show_default=True, metavar="NAME|FILE", help="What the model is made of."
)
@click.option(
    "--init",
    type=FOLDER,
    metavar="CHECKPOINT",
    help="Start from these weights, with their configuration and tokenizer, in place of random ones.",
)
@click.option(
    "--validation",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR|FILE",
    help="Text to validate on; without it, documents of the corpus are held out.",
)
@click.option(
    "--held-out",
    type=Real(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="Fraction of the documents to hold out.",
)
@click.option("--steps", type=POSITIVE, metavar="N", help="Optimizer steps.")
@click.option("--tokens", type=POSITIVE, metavar="N", help="Training tokens to see, instead of --steps.")
@click.option(
    "--epochs",
    type=ABOVE_0,
    show_default="5",
    help="Passes over the corpus, instead of --steps.",
)
@click.option("--batch-size", type=POSITIVE, default=8, show_default=True, help="Sequences in a step.")
@click.option("--learning-rate", type=ABOVE_0, default=1e-3, show_default=True, help="Highest learning rate.")
@click.option(
    "--warmup", type=FRACTION, default=0.02, show_default=True, help="Fraction of the steps that warm up."
)
@click.option("--weight-decay", type=FRACTION, default=0.1, show_default=True, help="On matrices only.")
@click.option(
    "--gradient-clip", type=ABOVE_0, default=1.0, show_default=True, help="Largest norm of the gradient."
)
@click.option(
    "--dropout",
    type=Real(0, 1, max_open=True),
    show_default="the configuration's",
    help="Probability of dropping.",
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16"]),
    default="fp32",
    show_default=True,
    help="What matrices are multiplied in; bf16 is faster where the processor has it.",
)
@store_option
@click.option(
    "--validate-every", type=POSITIVE, default=250, show_default=True, help="Steps between validations."
)
@click.option("--resume", is_flag=True, help="Go on with a run that was stopped or killed.")
@seed_option
@threads_option
@json_option
def command(
    corpus: tuple[Path, ...],
    validation: tuple[Path, ...],
    resume: bool,
    seed: int | None,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a GPT on text, and keep the best checkpoint.

    CORPUS is files of UTF-8 text, or folders of .txt files, one document each; one named twice counts twice.
    A byte-level BPE is trained first. Ctrl-C stops after the step at hand, and --resume goes on from there; a
    run that was killed goes on from its last validation.
    """
    from gpt_onnx.runtime._threads import available_threads
    from gpt_onnx.train.options import TrainOptions

    with misuse(options):
        wanted = TrainOptions(corpus=corpus, validation=validation, **options)

    import torch

    from gpt_onnx.train import stopped_seed, train

    torch.set_num_threads(threads or available_threads())
    if seed is None:
        seed = stopped_seed(wanted.output) if resume else _random_seed()
    wanted = dataclasses.replace(wanted, seed=seed)
    with cancel_request() as stop, _progress_display() as show:
        report = train(wanted, resume=resume, on_progress=show, stop=stop)
    if report is None:
        click.echo(
            f"Stopped; the same command with --resume goes on. State: {wanted.output}/training", err=True
        )
        sys.exit(INTERRUPTED)
    _print_report(report, wanted.output, as_json)
