"""``gpt-onnx train``: a checkpoint from text."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from gpt_onnx.cli._options import FOLDER, MAX_SEED, json_option, threads_option

if TYPE_CHECKING:
    from gpt_onnx.train import TrainProgress, TrainReport

POSITIVE = click.IntRange(min=1)
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130  # as a shell reports it


@contextmanager
def _stop_request() -> Iterator[Callable[[], bool]]:
    """Turn the first ctrl-C or SIGTERM into a request that the loop asks for; the second acts as usual."""
    requested = False
    previous = {int(number): signal.getsignal(number) for number in STOP_SIGNALS}

    def request(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        requested = True
        signal.signal(number, previous[number])

    for number in STOP_SIGNALS:
        signal.signal(number, request)
    try:
        yield lambda: requested
    finally:
        for restored, handler in previous.items():
            signal.signal(restored, handler)


@contextmanager
def _progress_display() -> Iterator[Callable[[TrainProgress], None]]:
    """Show a bar on a terminal; elsewhere a line on stderr for each validation."""
    if not sys.stderr.isatty():
        yield _print_validation
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


def _print_validation(progress: TrainProgress) -> None:
    if progress.bits_per_byte is not None:
        click.echo(_validation_line(progress), err=True)


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
    "--validation",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR|FILE",
    help="Text to validate on; without it, documents of the corpus are held out.",
)
@click.option(
    "--held-out",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="Fraction of the documents to hold out.",
)
@click.option("--steps", type=POSITIVE, metavar="N", help="Optimizer steps.")
@click.option("--tokens", type=POSITIVE, metavar="N", help="Training tokens to see, instead of --steps.")
@click.option(
    "--epochs",
    type=click.FloatRange(0, min_open=True),
    show_default="5",
    help="Passes over the corpus, instead of --steps.",
)
@click.option("--batch-size", type=POSITIVE, default=8, show_default=True, help="Sequences in a step.")
@click.option("--learning-rate", type=float, default=1e-3, show_default=True, help="Highest learning rate.")
@click.option(
    "--warmup", type=float, default=0.02, show_default=True, help="Fraction of the steps that warm up."
)
@click.option("--weight-decay", type=float, default=0.1, show_default=True, help="On matrices only.")
@click.option(
    "--gradient-clip", type=float, default=1.0, show_default=True, help="Largest norm of the gradient."
)
@click.option("--dropout", type=float, show_default="the configuration's", help="Probability of dropping.")
@click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16"]),
    default="fp32",
    show_default=True,
    help="What matrices are multiplied in; bf16 is faster where the processor has it.",
)
@click.option(
    "--store",
    type=click.Choice(["fp32", "fp16", "bf16"]),
    default="fp32",
    show_default=True,
    help="How the checkpoint's weights are stored.",
)
@click.option(
    "--validate-every", type=POSITIVE, default=250, show_default=True, help="Steps between validations."
)
@click.option(
    "-s", "--seed", type=click.IntRange(0, MAX_SEED), default=0, show_default=True, help="Seed of the run."
)
@click.option("--resume", is_flag=True, help="Go on with a run that was stopped or killed.")
@threads_option
@json_option
def command(
    corpus: tuple[Path, ...],
    validation: tuple[Path, ...],
    resume: bool,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a GPT on CORPUS, files of UTF-8 text or folders of .txt files, and keep the best checkpoint.

    A byte-level BPE is trained first. Ctrl-C stops after the step at hand, and --resume goes on from there; a
    run that was killed goes on from its last validation.
    """
    import torch

    from gpt_onnx.train import TrainOptions, train

    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    wanted = TrainOptions(corpus=corpus, validation=validation, **options)
    with _stop_request() as stop, _progress_display() as show:
        report = train(wanted, resume=resume, on_progress=show, stop=stop)
    if report is None:
        click.echo(
            f"Stopped; the same command with --resume goes on. State: {wanted.output}/training", err=True
        )
        sys.exit(INTERRUPTED)
    _print_report(report, wanted.output, as_json)
