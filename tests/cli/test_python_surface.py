"""Whatever is given to the Python surface, it is used, or refused by an error of this package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt_onnx.errors import GptOnnxError
from gpt_onnx.runtime import TextGPT, load

ODD: list[Any] = [
    None,
    3,
    1.5,
    True,
    "x",
    b"x",
    [],
    [1],
    {},
    {1},
    object(),
    -1,
    10**5000,
    float("nan"),
    np.array(3),
    np.array([1.5]),
    np.array(["stop"]),
    lambda: True,
    range(3),
    "\ud800",
    1j,
]
TEXT_OPTIONS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "sampling", "stop", "seed")
SHARED_OPTIONS = ("ignore_eos", "on_context_end", "cancelled")
ENGINE_OPTIONS = ("sampling", "stop_ids", "generator", "allowed_vocab")


@pytest.fixture(scope="module")
def gpt(bigram: Path) -> TextGPT:
    return load(bigram, threads=1)


Call = tuple[str, Callable[[], object]]


def exhaust(stream: Callable[..., Iterator[object]], *args: Any, **options: Any) -> None:
    for _ in stream(*args, **options):
        pass


def calls_with_options(gpt: TextGPT, odd: Any) -> Iterator[Call]:
    for name in (*TEXT_OPTIONS, *SHARED_OPTIONS):
        yield f"complete {name}", partial(gpt.complete, "a", 2, **{name: odd})
        yield f"stream {name}", partial(exhaust, gpt.stream, "a", 2, **{name: odd})
        yield f"text generate {name}", partial(gpt.generate, ["a"], 2, **{name: odd})
    for name in (*ENGINE_OPTIONS, *SHARED_OPTIONS):
        yield f"generate {name}", partial(gpt.engine.generate, [1], 2, **{name: odd})
        yield f"engine stream {name}", partial(exhaust, gpt.engine.stream, [1], 2, **{name: odd})


def calls_with_ids(gpt: TextGPT, odd: Any) -> Iterator[Call]:
    engine = gpt.engine
    yield "a prompt", partial(gpt.complete, odd, 1)
    yield "prompts", partial(gpt.generate, odd, 1)
    yield "prompts of ids", partial(engine.generate, odd, 1)
    yield "logits", partial(engine.logits, odd)
    yield "a mask", partial(engine.logits, [[1]], odd)
    yield "append", partial(engine.decoder(1).append, odd)
    yield "rewind", partial(engine.decoder(1).rewind, odd)
    yield "keep_rows", partial(engine.decoder(1).keep_rows, odd)


def calls_with_numbers(gpt: TextGPT, path: Path, odd: Any) -> Iterator[Call]:
    yield "keep", partial(gpt.engine.decoder(1).append, [[1]], odd)
    yield "a batch size", partial(gpt.engine.decoder, odd)
    yield "a capacity", partial(gpt.engine.decoder, 1, odd)
    yield "a path", partial(load, odd)
    yield "a provider", partial(load, path, odd)
    yield "threads", partial(load, path, threads=odd)


def refusal(call: Callable[[], object]) -> str | None:
    """Return the sentence of a call that was refused; other exceptions go through."""
    try:
        call()
    except GptOnnxError as exc:
        return str(exc)
    return None


@pytest.mark.parametrize("index", range(len(ODD)))
def test_an_odd_argument_is_used_or_refused_with_a_sentence(gpt: TextGPT, bigram: Path, index: int) -> None:
    odd = ODD[index]
    calls = [
        *calls_with_options(gpt, odd),
        *calls_with_ids(gpt, odd),
        *calls_with_ids(gpt, [odd]),
        *calls_with_numbers(gpt, bigram, odd),
    ]
    for name, call in calls:
        try:
            sentence = refusal(call)
        except Exception as exc:
            pytest.fail(f"{name} raised {exc!r}")
        assert sentence is None or sentence.endswith("."), name
