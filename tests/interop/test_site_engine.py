"""The page's engine, part by part, against the Python runtime's: random numbers, filters, text, ids."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt_onnx.runtime._text import StopStrings, TextStream
from gpt_onnx.runtime.sampling import Sampler, Sampling
from gpt_onnx.runtime.tokenizer import Tokenizer, load_tokenizer
from gpt_onnx.web._samples import TEXTS
from tests.interop._browser import Page, page
from tests.interop._environments import HERE
from tests.interop._models import SHIPPED
from tests.interop._served import serving
from tests.interop._sites import checkers, libraries

VALIDATION = SHIPPED / "validation.txt"
SITE = Path(__file__).parents[2] / "gpt_onnx" / "web" / "site"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page on which the engine's modules can be imported."""
    empty = tmp_path_factory.mktemp("page")
    (empty / "index.html").write_text('<!doctype html><title>engine</title><link rel="icon" href="data:,">')
    folders = {"/": empty, "/engine/": SITE / "engine", "/vendor/": libraries(), "/model/": SHIPPED}
    with serving(folders) as server, page(server.url + "/") as p:
        yield p


def _run(engine: Page, module: str, js: str) -> Any:
    """Evaluate an expression over ``m``, a module of the engine."""
    return engine.evaluate(
        f"await (async () => {{ const m = await import('/engine/{module}.js'); return {js}; }})()"
    )


def _refusal(engine: Page, module: str, js: str) -> str:
    """Return what a call says that throws."""
    return str(_run(engine, module, f"(() => {{ try {{ {js}; }} catch (e) {{ return e.message; }} }})()"))


@pytest.mark.parametrize("seed", [0, 1, 7, 2**31, 2**32 + 5, 2**63 - 1])
def test_random_numbers_are_numpys(engine: Page, seed: int) -> None:
    [child] = np.random.default_rng(seed).spawn(1)
    numbers = "Array.from({ length: 20 }, () => r.next())"
    js = f"(() => {{ const r = m.childOfSeed({seed}n); return {numbers}; }})()"
    assert _run(engine, "random", js) == child.random(20).tolist()


GRID = list(
    itertools.product([0.0, 0.3, 1.0, 5.0], [0, 1, 7, 50], [1.0, 0.9, 0.1], [0.0, 0.02, 0.5], [1.0, 1.4])
)


def _distributions(engine: Page, logits: list[float], seen: list[int], allowed: list[int] | None) -> Any:
    names = ("temperature", "topK", "topP", "minP", "repetitionPenalty")
    grid = [dict(zip(names, values, strict=True)) for values in GRID]
    mask = "null" if allowed is None else f"Uint8Array.from({json.dumps(allowed)})"
    js = (
        f"(() => {{ const logits = Float32Array.from({json.dumps(logits)}); return {json.dumps(grid)}.map("
        f"(s) => new m.Sampler(s, {mask}).distribution(logits, {json.dumps(seen)})"
        ".map(({ id, value }) => [id, value])); })()"
    )
    return _run(engine, "sampling", js)


@pytest.mark.parametrize("case", ["smooth", "ties", "masked", "long"])
def test_filters_keep_what_the_runtime_keeps(engine: Page, case: str) -> None:
    generator = np.random.default_rng(3)
    size = 5000 if case == "long" else 200
    logits = (generator.standard_normal(size) * 3).astype(np.float32)
    if case == "ties":
        logits = np.round(logits).astype(np.float32)
    mask = generator.random(size) < 0.7 if case == "masked" else None
    seen = [3, 5, int(logits.argmax())]
    found = _distributions(engine, logits.tolist(), seen, None if mask is None else mask.astype(int).tolist())
    for values, pairs in zip(GRID, found, strict=True):
        temperature, top_k, top_p, min_p, penalty = values
        sampling = Sampling(
            temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=penalty
        )
        ids, probabilities = Sampler(sampling=sampling, allowed=mask).distribution(logits, seen)
        assert [pair[0] for pair in pairs] == ids.tolist(), values
        if temperature:
            np.testing.assert_allclose(
                [pair[1] for pair in pairs], probabilities, rtol=1e-12, err_msg=str(values)
            )


def test_draws_are_the_runtimes(engine: Page) -> None:
    from gpt_onnx.runtime.sampling import draw

    values = np.array([0.25, 0.0, 0.5, 0.25])
    uniforms = [0.0, 0.2499999, 0.25, 0.5, 0.75, 0.9999999999999999]
    candidates = [{"id": index + 10, "value": value} for index, value in enumerate(values.tolist())]
    js = f"{json.dumps(uniforms)}.map((u) => m.draw({json.dumps(candidates)}, u))"
    assert _run(engine, "sampling", js) == draw(np.arange(10, 14), values, np.array(uniforms)).tolist()


def test_logits_that_are_no_numbers_are_refused(engine: Page) -> None:
    said = _refusal(engine, "sampling", "m.checkLogits(Float32Array.of(1, NaN, Infinity))")
    assert said.startswith("2 of 3 logits are NaN or infinite")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(SHIPPED / "tokenizer.json", [0])


def _with_tokenizer(engine: Page, js: str) -> Any:
    setup = (
        "const { Tokenizer: Library } = await import('/vendor/tokenizers.min.mjs');"
        "const { Tokenizer } = await import('/engine/tokenizer.js');"
        "const text = await import('/engine/text.js');"
        "const values = await (await fetch('/model/tokenizer.json')).json();"
        "const tokenizer = new Tokenizer(values, [0], Library);"
    )
    return engine.evaluate(f"await (async () => {{ {setup} return {js}; }})()")


HARD = (
    "",
    " ",
    "\n\n\n",
    "a\u0301 e\u0301 \u200d\u200b\ufeff x",
    "👩🏽‍🚀🏳️‍🌈 flags 🇺🇸🇩🇪",
    "𝒻𝓊𝓃 𠮷野家 ﷽",
    "<|endoftext|><|im_start|>user",
    "don't we'll I'VE they'RE",
    "0 00 000 12345678901234567890",
    "\t\tif (x) {\r\n  y();\r\n}",
)


def test_ids_are_those_of_the_python_library(engine: Page, tokenizer: Tokenizer) -> None:
    lines = VALIDATION.read_text(encoding="utf-8")[:20000].split("\n")
    texts = [*TEXTS, *HARD, *lines]
    found = _with_tokenizer(engine, f"{json.dumps(texts)}.map((t) => tokenizer.encode(t))")
    for text, ids in zip(texts, found, strict=True):
        assert ids == tokenizer.encode(text), text


def test_pieces_of_text_join_to_what_python_decodes(engine: Page, tokenizer: Tokenizer) -> None:
    rows = [tokenizer.encode(text) for text in [*TEXTS, *HARD] if text]
    rows += [np.random.default_rng(5).integers(0, 4096, 200).tolist()]
    js = (
        f"{json.dumps(rows)}.map((ids) => {{"
        "const s = new text.TextStream(text.detokenizer(tokenizer, []), []);"
        "const pieces = ids.map((id) => s.push(id)); return [...pieces, s.flush()]; })"
    )
    for ids, pieces in zip(rows, _with_tokenizer(engine, js), strict=True):
        assert "".join(pieces) == tokenizer.decode(ids)


def test_prompt_may_end_within_a_character(engine: Page, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a😀日b")
    js = (
        f"{json.dumps(ids)}.map((_, cut, ids) => {{"
        "const s = new text.TextStream(text.detokenizer(tokenizer, ids.slice(0, cut)), []);"
        "return [...ids.slice(cut).map((id) => s.push(id)), s.flush()].join(''); })"
    )
    for cut, found in enumerate(_with_tokenizer(engine, js)):
        stream = TextStream(tokenizer, context=ids[:cut])
        assert found == "".join(map(stream.push, ids[cut:])) + stream.flush()


def test_control_tokens_are_letters(engine: Page, tokenizer: Tokenizer) -> None:
    ids = _with_tokenizer(engine, "tokenizer.encode('<|endoftext|>')")
    assert 0 not in ids
    assert tokenizer.decode(ids) == "<|endoftext|>"
    assert _with_tokenizer(engine, "tokenizer.textToken(0)") is None


def test_tokenizer_that_cannot_be_read_is_one_sentence(engine: Page) -> None:
    js = (
        "(() => { try { new Tokenizer({ ...values, normalizer: { type: 'Runes' } }, [], Library); }"
        " catch (e) { return e.message; } })()"
    )
    said = _with_tokenizer(engine, js)
    assert said.startswith("The tokenizer cannot be read by this page's library (")
    assert said.endswith("); give token ids instead.")


@pytest.mark.parametrize("stop", [["ab"], ["aab", "b"], ["😀"], ["xyz", "yz!"], []])
def test_stop_texts_cut_where_the_runtime_cuts(engine: Page, stop: list[str]) -> None:
    pieces = ["a", "a", "aa", "b x", "y", "z", "!", "", "😀", " end"]
    js = (
        f"(() => {{ const s = new m.StopTexts({json.dumps(stop)});"
        f"return [...{json.dumps(pieces)}.map((p) => s.push(p)), s.flush()]; }})()"
    )
    strings = StopStrings(stop)
    assert _run(engine, "text", js) == [*map(strings.push, pieces), strings.flush()]


def test_truncated_reference_is_one_sentence(engine: Page) -> None:
    said = _refusal(engine, "safetensors", "m.parseSafetensors(new Uint8Array([9, 0, 0, 0, 0, 0, 0, 0, 1]))")
    assert said == "reference.safetensors cannot be read (it is truncated)."


def test_types_of_the_modules_fit() -> None:
    node = shutil.which("node") or pytest.skip("Node is not installed here")
    command = [node, str(checkers() / "typescript" / "bin" / "tsc"), "-p", str(HERE / "site")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == ""
    assert done.returncode == 0
