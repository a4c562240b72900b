"""``gpt-onnx bench``: how fast is a bundle, and is it faster than the program that it came from?"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpt_onnx.cli._console import is_quiet, print_tables
from gpt_onnx.cli._misuse import misuse
from gpt_onnx.cli._options import (
    FOLDER,
    Integer,
    config_option,
    json_option,
    names_option,
    positive_counts,
    provider_option,
    refuse_without_source,
    repetitions_option,
    threads_option,
)
from gpt_onnx.cli._progress import stage_lines
from gpt_onnx.cli._streams import clean

if TYPE_CHECKING:
    from gpt_onnx.runtime.bench import BenchPlan, BenchReport

WIDTH = 120  # columns of a table that goes into a file


@contextlib.contextmanager
def _progress_bar() -> Iterator[Callable[[int, int], None]]:
    """Show how far it is between turns only: a thread that redraws a bar would disturb them."""
    if is_quiet() or not sys.stderr.isatty():
        with stage_lines("measure", watched=False) as show:
            yield partial(show, "measure") if show else lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("measuring"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("measuring", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total, refresh=True)


def _plot_file(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Refuse what could not be drawn before minutes of measuring: a usage error, or no matplotlib."""
    if value is not None:
        from gpt_onnx.cli._bench_plot import check_plot

        check_plot(value)
    return value


def _plan(**numbers: Any) -> BenchPlan:
    """Return what to measure.

    Raises:
        UsageError: if a number is out of its range.
    """
    from gpt_onnx.runtime.bench import BenchPlan

    with misuse(numbers):
        return BenchPlan(**numbers)


def _print(report: BenchReport) -> None:
    from gpt_onnx.cli._bench_table import lines, tables

    print_tables(*tables(report), width=None if sys.stdout.isatty() else WIDTH)
    click.echo()
    for line in lines(report):
        click.echo(clean(line))


@click.command("bench")
@click.argument("bundles", metavar="BUNDLE...", nargs=-1, required=True, type=FOLDER)
@click.option(
    "--against",
    metavar="SOURCE",
    help="Also run the same weights in eager PyTorch: a checkpoint, or FILE.py:NAME (runs its code).",
)
@click.option(
    "--compile", "compiled", is_flag=True, help="Also run SOURCE with its step compiled by torch.compile."
)
@click.option(
    "--peers",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also run the programs that a TOML file names, each under a Python of its own.",
)
@click.option(
    "--baseline",
    metavar="NAME",
    show_default="eager PyTorch, if it takes part, else the first BUNDLE",
    help="The contender that the others are compared with.",
)
@config_option
@names_option
@click.option(
    "--prompt-tokens",
    type=positive_counts,
    metavar="N,N",
    default="128,512",
    show_default=True,
    help="Lengths of the prompts, which are the contexts of the steps after them.",
)
@click.option(
    "-n",
    "--new-tokens",
    type=Integer(min=2),
    metavar="N",
    default=64,
    show_default=True,
    help="Tokens to generate after each prompt.",
)
@click.option(
    "--batch-size",
    type=positive_counts,
    metavar="N,N",
    default="1",
    show_default=True,
    help="Sequences at once; each number is measured at each length.",
)
@repetitions_option
@threads_option
@provider_option
@click.option(
    "--bandwidth/--no-bandwidth",
    default=True,
    show_default=True,
    help="Measure what the machine's memory delivers, and say which share of it a step has.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_plot_file,
    metavar="FILE",
    help="Also draw it: out.svg, .png or .pdf; needs matplotlib.",
)
@json_option
def command(
    bundles: tuple[Path, ...],
    against: str | None,
    compiled: bool,
    peers: Path | None,
    baseline: str | None,
    config: Path | None,
    names: Path | None,
    prompt_tokens: tuple[int, ...],
    new_tokens: int,
    batch_size: tuple[int, ...],
    repetitions: int,
    threads: int | None,
    provider: str,
    bandwidth: bool,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Time each BUNDLE: loading, first token, steps, memory and bandwidth.

    With --against, also the same weights in eager PyTorch with a key-value cache of its own. Every
    contender runs in its own process, takes short turns with the others, is stopped outside of them, and gets
    the same random token ids; prompts that do not fit into the context are cut, and the report says so.
    """
    from gpt_onnx.runtime.bench import bench, read_peers

    if against is None:
        refuse_without_source(config=config, names=names)
        if compiled:
            raise click.UsageError("--compile is for the SOURCE of --against; name that, or leave it away.")
    plan = _plan(
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
        batch_sizes=batch_size,
        repetitions=repetitions,
        threads=threads,
        provider=provider,
        bandwidth=bandwidth,
    )
    with _progress_bar() as progress:
        report = bench(
            bundles,
            against=against,
            config=config,
            names=names,
            compiled=compiled,
            peers=[] if peers is None else read_peers(peers),
            baseline=baseline,
            plan=plan,
            progress=progress,
        )
    if plot is not None:
        from gpt_onnx.cli._bench_plot import draw

        draw(report, plot)
    if as_json:
        click.echo(json.dumps(report.to_json()))
    else:
        _print(report)
