"""``gpt-onnx generate``: text from a bundle."""

from __future__ import annotations

import dataclasses
import re
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from gpt_onnx.bundle._names import shorten
from gpt_onnx.cli._answers import Task, answer_batch, answer_one
from gpt_onnx.cli._console import INTERRUPTED, leave_pipe, plain_warnings
from gpt_onnx.cli._misuse import misuse
from gpt_onnx.cli._options import (
    Integer,
    Real,
    bundle_argument,
    new_tokens_option,
    no_hash_option,
    provider_option,
    seed_option,
    threads_option,
)
from gpt_onnx.cli._prompts import Prompt, read_prompt, token_ids

CANCELLED = "cancelled"
SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Return what the command line says of the sampling.

    Raises:
        UsageError: if a number is out of its range.
    """
    from gpt_onnx.runtime.sampling import Sampling

    given = {name: options[name] for name in SAMPLING_OPTIONS if options[name] is not None}
    with misuse(given):
        Sampling(**given)
    return given


def _run(prompts: Sequence[Prompt], bundle: Path, options: dict[str, Any]) -> int:
    """Load, generate, print; return the exit code."""
    from gpt_onnx.runtime.text import load

    given = _given(options)

    started = time.perf_counter()
    gpt = load(bundle, options["provider"], options["threads"], check_hashes=not options["no_hash"])
    sampling = dataclasses.replace(gpt.defaults.sampling, **given)  # in place of the bundle's own
    task = Task(
        gpt=gpt,
        new_tokens=options["new_tokens"],
        options={
            "sampling": sampling,
            "stop": options["stop"],
            "seed": secrets.randbelow(1 << 32) if options["seed"] is None else options["seed"],
            "ignore_eos": options["ignore_eos"],
            "on_context_end": options["on_context_end"],
            "speculate": options["speculate"],
        },
        load_s=time.perf_counter() - started,
        tell_seed=options["seed"] is None and not sampling.greedy and not options["as_json"],
        echo=options["echo"],
        as_json=options["as_json"],
        stream=options["stream"],
        stats=options["stats"],
    )
    completions = [answer_one(task, prompts[0])] if len(prompts) == 1 else answer_batch(task, prompts)
    return INTERRUPTED if CANCELLED in {completion.finish_reason for completion in completions} else 0


def speculation(value: int | str) -> int | str:
    """Return ``auto``, ``off`` or the most tokens of a guess; anything else is a usage error."""
    from gpt_onnx.runtime._speculation import AUTO, MOST_GUESSED, OFF

    if value in (AUTO, OFF):
        return value
    if not re.fullmatch("[0-9]{1,9}", str(value)) or int(value) > MOST_GUESSED:
        raise click.BadParameter(
            f"{shorten(str(value))} is neither {AUTO} nor {OFF}, nor a number of tokens from 0 to "
            f"{MOST_GUESSED}."
        )
    return int(value)


_BUNDLE_OR = "the bundle's, else {}"


@click.command(name="generate")
@bundle_argument
@click.option("-p", "--prompt", multiple=True, metavar="TEXT", help="Text to continue; repeat for a batch.")
@click.option(
    "-f", "--file", metavar="FILE", help="File with a prompt; - is stdin. A newline at its end is left out."
)
@click.option(
    "--prompt-ids",
    type=token_ids,
    multiple=True,
    metavar="ID,ID...",
    help="Prompt as token ids; repeat for a batch.",
)
@new_tokens_option
@click.option(
    "--stop", multiple=True, metavar="TEXT", help="Stop at this text, which is not shown; repeatable."
)
@click.option("--ignore-eos", is_flag=True, help="Go on after the end of a text.")
@click.option(
    "--on-context-end",
    type=click.Choice(["stop", "slide"]),
    default="stop",
    show_default=True,
    help="When the context is full: stop, or slide and forget the beginning.",
)
@click.option(
    "--temperature",
    "--temp",
    type=Real(min=0),
    metavar="T",
    show_default=_BUNDLE_OR.format(0.8),
    help="Divides the logits; 0 is greedy.",
)
@click.option(
    "--top-k",
    type=Integer(min=0),
    metavar="K",
    show_default=_BUNDLE_OR.format(50),
    help="Keep the K most probable tokens; 0 is off.",
)
@click.option(
    "--top-p",
    type=Real(0, 1),
    metavar="P",
    show_default=_BUNDLE_OR.format(1),
    help="Keep the most probable tokens up to this sum of probabilities.",
)
@click.option(
    "--min-p",
    type=Real(0, 1),
    metavar="P",
    show_default=_BUNDLE_OR.format(0),
    help="Keep tokens at least P times as probable as the most probable.",
)
@click.option(
    "--repetition-penalty",
    "--repeat-penalty",
    type=Real(min=0, min_open=True),
    metavar="R",
    show_default=_BUNDLE_OR.format(1),
    help="Makes tokens that already stand in the text less likely; 1 is off.",
)
@seed_option
@provider_option
@threads_option
@no_hash_option
@click.option(
    "--speculate",
    type=speculation,
    metavar="auto|off|N",
    help="Guess up to N (at most 31) tokens at once of a text that repeats itself: the same text but for "
    "near ties, sooner; auto: where it pays. A batch is never guessed.  [default: auto; off for int8 and "
    "int4 with rounded activations, where near ties are many]",
)
@click.option(
    "--stream/--no-stream", default=True, show_default=True, help="Print text as it comes; a batch never is."
)
@click.option("--echo", is_flag=True, help="Print the prompt before its continuation.")
@click.option("--stats", is_flag=True, help="Print counts and times on stderr.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object a prompt, one a line, instead of text; times are those of the whole batch.",
)
def command(
    bundle: Path, prompt: tuple[str, ...], file: str | None, prompt_ids: tuple[list[int], ...], **options: Any
) -> None:
    """Continue text with BUNDLE; PyTorch is not needed.

    \b
    gpt-onnx generate bundle -p "My fellow citizens," -n 100 -s 1
    echo "My fellow citizens," | gpt-onnx generate bundle -f -

    An empty prompt starts a new text. Ctrl-C ends the generation and keeps the text so far.
    """  # noqa: D301  # click takes the character, not the two letters, for "do not wrap"
    if not prompt and file is None and not prompt_ids:
        raise click.UsageError("there is no prompt; give -p TEXT, -f FILE or --prompt-ids 1,2,3.")
    prompts: list[Prompt] = [*prompt, *([read_prompt(file)] if file is not None else []), *prompt_ids]
    try:
        with plain_warnings():
            code = _run(prompts, bundle, options)
    except BrokenPipeError:
        leave_pipe()
    click.get_current_context().exit(code)
