"""``gpt-onnx eval``: how well does a bundle predict a text, and how far is it from another bundle?"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpt_onnx.cli._console import note, plain_warnings, print_tables
from gpt_onnx.cli._options import (
    FOLDER,
    Integer,
    bundle_argument,
    json_option,
    provider_option,
    threads_option,
)

if TYPE_CHECKING:
    from gpt_onnx.runtime.quality import Evaluation


@contextmanager
def _bar() -> Iterator[Callable[[int, int | None], None] | None]:
    """Give a function that shows how many tokens are done."""
    from gpt_onnx.cli._progress import progress_bars

    with progress_bars("load") as show:
        if show is None:
            yield None
            return
        yield lambda done, total: show("tokens", done, done + 1 if total is None else total)


def _print(found: Evaluation) -> None:
    from gpt_onnx.cli._quality_table import about, evaluation_tables

    click.echo(f"{about(found)}\n")
    print_tables(*evaluation_tables(found))


@click.command("eval")
@bundle_argument
@click.option(
    "-f",
    "--text",
    required=True,
    metavar="FILE",
    help="UTF-8 text of any size (- is stdin), or token ids in a .npy file.",
)
@click.option(
    "--against",
    type=FOLDER,
    metavar="BUNDLE",
    help="Another bundle of the same vocabulary: how far is the first one from it?",
)
@click.option(
    "--max-tokens",
    type=Integer(min=2),
    metavar="N",
    show_default="all",
    help="Read no more tokens of the text.",
)
@click.option(
    "--window",
    type=Integer(min=2),
    metavar="N",
    show_default="512, or what the model takes",
    help="Tokens that are computed together; each is predicted from half as many or more.",
)
@threads_option
@provider_option
@json_option
def command(
    bundle: Path,
    text: str,
    against: Path | None,
    max_tokens: int | None,
    window: int | None,
    threads: int | None,
    provider: str,
    as_json: bool,
) -> None:
    """Measure how well a bundle predicts a text: perplexity, and bits per byte.

    With --against, also how far it is from another bundle, such as the one in fp32: the ratio of the
    perplexities, the KL divergence between their predictions, and how often the most likely token is the
    same. Memory does not depend on the size of the text.

    \b
    gpt-onnx eval bundle --text speech.txt
    gpt-onnx eval bundle-int4 --text speech.txt --against bundle
    """  # noqa: D301  # click takes the character, not the two letters, for "do not wrap"
    from gpt_onnx.runtime.quality import evaluate

    source = sys.stdin.buffer if text == "-" else text
    with plain_warnings(), _bar() as progress:
        found = evaluate(
            bundle,
            source,
            against=against,
            window=window,
            max_tokens=max_tokens,
            provider=provider,
            threads=threads,
            progress=progress,
        )
    for line in found.notes:
        note(f"Note: {line}")
    if as_json:
        click.echo(json.dumps(found.to_json()))
    else:
        _print(found)
