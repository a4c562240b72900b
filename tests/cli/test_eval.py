"""``gpt-onnx eval`` as a user types it, on a model whose every prediction is known."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from gpt_onnx.cli._group import cli
from gpt_onnx.errors import GptOnnxError
from tests.cli.conftest import LACKING, TEXT, table, tokenizer

VOCAB = 257 + LACKING
LONG = TEXT * 60


def run(*arguments: Any, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["eval", *map(str, arguments), "-t", "1"], input=stdin)


def measured(*arguments: Any, **options: Any) -> dict[str, Any]:
    result = run(*arguments, "--json", **options)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def refused(*arguments: Any, stdin: bytes | None = None) -> str:
    """The sentence of an error."""
    result = run(*arguments, stdin=stdin)
    assert isinstance(result.exception, GptOnnxError), result.output
    return str(result.exception)


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    path = tmp_path / "speech.txt"
    path.write_text(LONG, encoding="utf-8", newline="")
    return path


def expected_nll(ids: list[int]) -> float:
    """In nats a token: the model looks at one token only, so that windows change nothing."""
    logits = table(VOCAB).astype(np.float64)
    chances = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return float(-np.mean([chances[now, following] for now, following in itertools.pairwise(ids)]))


def test_perplexity_and_bits_are_those_of_the_table(bigram: Path, speech: Path) -> None:
    ids = tokenizer().encode(LONG).ids
    found = measured(bigram, "--text", speech, "--window", 16)
    nll, size = expected_nll(ids), len(LONG.encode()) - 1
    assert (found["perplexity"]["tokens"], found["window"]) == (len(ids) - 1, 16)
    assert found["perplexity"]["text_bytes"] == size
    assert found["perplexity"]["nll"]["value"] == pytest.approx(nll, rel=1e-9)
    assert found["perplexity"]["bits_per_byte"] == pytest.approx(
        nll / math.log(2) * (len(ids) - 1) / size, rel=1e-9
    )
    assert found["comparison"] is None


def test_a_text_comes_from_a_pipe_too_and_ids_from_a_file(bigram: Path, speech: Path, tmp_path: Path) -> None:
    whole = measured(bigram, "--text", speech)["perplexity"]
    assert measured(bigram, "-f", "-", stdin=LONG.encode())["perplexity"] == whole
    np.save(tmp_path / "ids.npy", np.array(tokenizer().encode(LONG).ids, np.uint16))
    of_ids = measured(bigram, "--text", tmp_path / "ids.npy")["perplexity"]
    assert of_ids == whole | {"text_bytes": None, "bits_per_byte": None}


def test_no_more_is_read_than_is_asked_for(bigram: Path, speech: Path) -> None:
    found = measured(bigram, "--text", speech, "--max-tokens", 27)["perplexity"]
    assert found["tokens"] == 26
    ids = tokenizer().encode(LONG).ids[:27]
    assert found["text_bytes"] == len(tokenizer().decode(ids[1:]).encode())


def test_a_bundle_beside_itself_differs_in_nothing(bigram: Path, speech: Path) -> None:
    found = measured(bigram, "--text", speech, "--against", bigram)["comparison"]
    assert found["kl"]["max"] == found["rms_change"]["value"] == 0
    assert (found["ratio"]["value"], found["same_top"]["value"]) == (1, 1)


def test_the_table_has_both_models_and_every_figure(bigram: Path, speech: Path) -> None:
    result = run(bigram, "--text", speech, "--against", bigram)
    assert result.exit_code == 0
    for word in ("perplexity ratio", "1.0000 +- 0.0000", "bits per byte", "99.9 %", "same most likely token"):
        assert word in result.stdout
    assert (
        f"{len(tokenizer().encode(LONG).ids) - 1:,} tokens ({len(LONG.encode()) - 1:,} bytes)"
        in result.stdout
    )
    assert result.stderr == ""


def test_different_tokenizers_are_noted(bigram: Path, make_bigram: Callable[..., Path], speech: Path) -> None:
    other = make_bigram(edit=('"add_prefix_space":false', '"add_prefix_space":true'))
    result = run(bigram, "--text", speech, "--against", other)
    assert result.exit_code == 0, result.output
    assert "different tokenizers; the text was read with that of the first" in result.stderr


def test_a_bundle_without_a_tokenizer_reads_with_the_others(
    bigram: Path, make_bigram: Callable[..., Path], speech: Path
) -> None:
    found = measured(make_bigram(text=False), "--text", speech, "--against", bigram)
    assert found["comparison"]["kl"]["max"] == 0
    assert found["notes"] == []


@pytest.mark.parametrize("name", ["gqa", "static-decomposed"])
def test_graphs_with_a_cache_give_the_figures_of_the_eager_model(
    name: str, tiny_bundle: Callable[..., Any], tmp_path: Path
) -> None:
    from tests.conftest import LAYOUTS

    made = tiny_bundle(**LAYOUTS[name])
    ids = np.random.default_rng(0).integers(0, 97, 150)
    np.save(tmp_path / "ids.npy", ids)
    found = measured(made.path, "--text", tmp_path / "ids.npy", "--window", 24)
    total, start = 0.0, 0
    while start + 1 < len(ids):  # windows of 24 that overlap by 12
        logits = made.logits(ids[start : start + 24].tolist())
        logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
        following = ids[start + 1 : start + 25]
        first = 12 if start else 0
        total -= sum(logits[at, following[at]] for at in range(first, len(following)))
        start += 12
        if start + 13 > len(ids):
            break
    assert found["perplexity"]["nll"]["value"] == pytest.approx(total / (len(ids) - 1), rel=1e-4)


def test_a_window_longer_than_the_text_is_one_window_and_said(
    make_bigram: Callable[..., Path], tmp_path: Path
) -> None:
    text = tmp_path / "short.txt"
    text.write_text("twenty letters of it")
    found = measured(make_bigram(), "--text", text, "--window", 64)
    assert found["notes"] == ["the text has 20 tokens, fewer than a window of 64; it was one window."]
    assert (found["window"], found["perplexity"]["tokens"]) == (64, 19)
    assert measured(make_bigram(), "--text", text, "--window", 20)["notes"] == []
    assert measured(make_bigram(), "--text", text)["notes"] == []


def test_a_window_beyond_the_training_is_said(make_bigram: Callable[..., Path], speech: Path) -> None:
    trained = make_bigram(trained=16)
    (note,) = measured(trained, "--text", speech, "--window", 24)["notes"]
    assert note.startswith("windows of 24 tokens are longer than the 16 that bigram was trained on")
    assert measured(trained, "--text", speech)["notes"] == []


def test_a_window_longer_than_the_positions_is_refused(
    make_bigram: Callable[..., Path], speech: Path
) -> None:
    short = make_bigram(limit=16)
    assert measured(short, "--text", speech)["window"] == 16
    assert "windows of 17 tokens are longer than the 16" in refused(short, "--text", speech, "--window", 17)


def test_texts_that_cannot_be_measured_are_refused(
    bigram: Path, make_bigram: Callable[..., Path], speech: Path, tmp_path: Path
) -> None:
    assert "stdin is not UTF-8 at byte 2" in refused(bigram, "--text", "-", stdin=b"ab\xffcd")
    for short in (b"", b"a"):
        assert "give a text of at least two tokens" in refused(bigram, "--text", "-", stdin=short)
    assert "could not be read: No such file" in refused(bigram, "--text", tmp_path / "missing")
    bare = make_bigram(text=False)
    assert "no tokenizer.json for it; give token ids as a file named .npy" in refused(bare, "--text", speech)
    np.save(tmp_path / "ids.npy", np.array([1, VOCAB]))
    assert f"id {VOCAB} at index 1" in refused(bare, "--text", tmp_path / "ids.npy")


def test_bundles_of_different_vocabularies_are_refused(
    bigram: Path, speech: Path, tiny_bundle: Callable[..., Any]
) -> None:
    said = refused(bigram, "--text", speech, "--against", tiny_bundle().path)
    assert f"vocabularies of {VOCAB} and 97 tokens" in said


@pytest.mark.parametrize(
    "arguments", [[], ["--text", "x", "--window", "1"], ["--text", "x", "--max-tokens", "0"]]
)
def test_usage_errors_have_exit_code_2(bigram: Path, arguments: list[str]) -> None:
    assert run(bigram, *arguments).exit_code == 2


def test_it_runs_where_torch_and_onnx_cannot_be_imported(bigram: Path, speech: Path) -> None:
    program = (
        "import sys; sys.modules.update(torch=None, onnx=None, scipy=None)\n"
        "from gpt_onnx.cli import main\n"
        f"main(['eval', {str(bigram)!r}, '--text', {str(speech)!r}, '-t', '1'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "bits per byte" in done.stdout
