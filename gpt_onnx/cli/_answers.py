"""What ``gpt-onnx generate`` prints: one text as it comes, or several under headers, or JSON lines."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gpt_onnx.cli._console import Answer, cancel_request, note, whole_writes
from gpt_onnx.cli._prompts import Prompt
from gpt_onnx.cli._streams import say
from gpt_onnx.runtime._arguments import counted

CONTEXT = "context"
"""Why a generation ended whose window is full."""

if TYPE_CHECKING:
    from gpt_onnx.runtime import TextGPT
    from gpt_onnx.runtime.text import Completion, CompletionStream, TextOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is asked for: all that does not depend on the prompt."""

    gpt: TextGPT
    new_tokens: int
    options: TextOptions
    load_s: float
    """Seconds that loading took."""
    tell_seed: bool
    """Whether the seed was chosen at random and is worth knowing."""
    echo: bool
    as_json: bool
    stream: bool
    stats: bool

    def shown(self, prompt: Prompt, completion: Completion) -> str:
        """Return the answer: new text, or new ids where there is no tokenizer; the prompt first if echoed."""
        if self.gpt.tokenizer is None:
            ids = [*(completion.prompt_ids if self.echo else ()), *completion.ids]
            return ",".join(map(str, ids))
        return self.echoed(prompt) + completion.text

    def echoed(self, prompt: Prompt) -> str:
        """Return the prompt's text if it is to be echoed."""
        if not self.echo or self.gpt.tokenizer is None:
            return ""
        return prompt if isinstance(prompt, str) else self.gpt.tokenizer.decode(prompt)


def _timings(
    task: Task, started: float, first: float | None, completions: Sequence[Completion]
) -> dict[str, Any]:
    """Return seconds and counts; the rate leaves out the first token, which waits for the prompt."""
    total, new = time.perf_counter() - started, sum(len(completion.ids) for completion in completions)
    timings: dict[str, Any] = {
        "load_s": round(task.load_s, 4),
        "prompt_tokens": sum(len(completion.prompt_ids) for completion in completions),
        "new_tokens": new,
        "total_s": round(total, 4),
    }
    if first is not None and new > 1:
        timings["first_token_s"] = round(first - started, 4)
        timings["tokens_per_s"] = round((new - 1) / max(total - (first - started), 1e-9), 2)
    return timings | _guesses(completions)


def _guesses(completions: Sequence[Completion]) -> dict[str, int]:
    """Return how many tokens were guessed in how many runs, and how many were right; {} if none is."""
    tried = [completion.speculation for completion in completions if completion.speculation is not None]
    if not tried:
        return {}
    return {
        "guessing_runs": sum(speculation.runs for speculation in tried),
        "guessed_tokens": sum(speculation.proposed for speculation in tried),
        "accepted_tokens": sum(speculation.accepted for speculation in tried),
    }


def _statistics(timings: dict[str, Any]) -> str:
    parts = [f"{counted(timings['prompt_tokens'], 'prompt token')}, {timings['new_tokens']} new"]
    parts.append(f"in {timings['total_s']:.2f} s")
    if "first_token_s" in timings:
        parts.append(f"(the first after {timings['first_token_s'] * 1000:.0f} ms,")
        parts.append(f"then {timings['tokens_per_s']:.1f} a second)")
    if timings.get("guessed_tokens"):
        parts[-1] += f"; {timings['accepted_tokens']} of {timings['guessed_tokens']} guessed tokens accepted"
        parts.append(f"in {counted(timings['guessing_runs'], 'run')}")
    return f"{' '.join(parts)}; loaded in {timings['load_s']:.2f} s"


def _tell_full(completions: Sequence[Completion]) -> None:
    """Say that a text ended before its length, which its words do not show."""
    full = [completion for completion in completions if completion.finish_reason == CONTEXT]
    if full:
        which = "" if len(completions) == 1 else f" in {len(full)} of {len(completions)} texts"
        tokens = max(len(completion.prompt_ids) + len(completion.ids) for completion in full)
        note(
            f"the context is full{which} after {counted(tokens, 'token')}; --on-context-end slide forgets "
            "the beginning and goes on"
        )


def _report(
    task: Task, prompts: Sequence[Prompt], completions: Sequence[Completion], timings: dict[str, Any]
) -> None:
    """Print what is printed after the generation: JSON lines, a full context, and the statistics."""
    if task.as_json:
        for prompt, completion in zip(prompts, completions, strict=True):
            ids, reason = list(completion.ids), completion.finish_reason
            line = {"text": task.shown(prompt, completion), "ids": ids, "finish_reason": reason}
            own = {"prompt_tokens": len(completion.prompt_ids), "new_tokens": len(ids)}  # times are common
            click.echo(json.dumps({**line, "seed": task.options.get("seed"), "timings": timings | own}))
    else:
        _tell_full(completions)
    if task.stats:
        reasons = ", ".join(completion.finish_reason for completion in completions)
        say(f"{_statistics(timings)}; on {task.gpt.engine.provider}; ended by {reasons}")


def _tell_seed(task: Task) -> None:
    if task.tell_seed:
        note(f"seed {task.options.get('seed')}")


def _write_pieces(answer: Answer, echoed: str, stream: CompletionStream) -> None:
    """Write pieces as they come; ctrl-C ends them, and what was kept back comes last."""
    written = 0

    def write(piece: str) -> None:
        nonlocal written
        answer.write(piece)
        written += len(piece)

    answer.write(echoed)
    try:
        with whole_writes() as whole:
            for piece in stream:
                whole(partial(write, piece))
    except KeyboardInterrupt:
        stream.close()
    answer.write(stream.completion.text[written:])


def _exhaust(stream: CompletionStream) -> None:
    """Generate without writing; ctrl-C ends it."""
    try:
        for _ in stream:
            pass
    except KeyboardInterrupt:
        stream.close()


def answer_one(task: Task, prompt: Prompt) -> Completion:
    """Generate from one prompt and print the text, piece by piece unless told otherwise.

    Ctrl-C ends the generation; the text so far is printed.
    """
    answer, started = Answer(), time.perf_counter()
    stream = task.gpt.stream(prompt, task.new_tokens, **task.options)
    _tell_seed(task)  # here, as the arguments have been checked, and before the text
    if task.stream and not task.as_json and task.gpt.tokenizer is not None:
        _write_pieces(answer, task.echoed(prompt), stream)
    else:
        _exhaust(stream)
        answer.write("" if task.as_json else task.shown(prompt, stream.completion))
    completion = stream.completion
    timings = _timings(task, started, stream.first_token_at, [completion])
    answer.end()
    _report(task, [prompt], [completion], timings)
    return completion


def answer_batch(task: Task, prompts: Sequence[Prompt]) -> list[Completion]:
    """Generate from several prompts and print the texts, each whole and under a header.

    The first ctrl-C ends the generation; the texts so far are printed.
    """
    answer, started = Answer(), time.perf_counter()
    with cancel_request() as cancelled:
        options: TextOptions = {**task.options, "cancelled": cancelled}
        completions = task.gpt.generate(prompts, task.new_tokens, **options)
    _tell_seed(task)
    timings = _timings(task, started, None, completions)
    if not task.as_json:
        for number, (prompt, completion) in enumerate(zip(prompts, completions, strict=True), 1):
            answer.write(f"=== {number} ===\n{task.shown(prompt, completion)}\n")
    _report(task, prompts, completions, timings)
    return completions
