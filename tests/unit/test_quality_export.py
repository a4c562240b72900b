"""A bundle beside the float32 model that it was made of: what is computed, on what text, what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats

from gpt_onnx.errors import ConfigError, InputError, ParityError
from gpt_onnx.export import export_bundle, quality_texts
from gpt_onnx.export.gpt_source import GptSource
from gpt_onnx.export.module_source import ModuleSource
from gpt_onnx.export.options import ExportOptions
from gpt_onnx.export.quality import Quality, check_max_kl, measure_quality
from gpt_onnx.export.quality_texts import EXCERPTS, MEASURED, Texts, calibration_sequences, read_texts
from gpt_onnx.export.streamed import streamed_predictor
from gpt_onnx.runtime import OnnxGPT
from gpt_onnx.runtime.quality import ComparisonMeter, Tokens, windows

SOTU = Path(__file__).parents[2] / "models" / "sotu"
KINDS: dict[str, dict[str, Any]] = {
    "sinusoidal": {},
    "learned": {"position": "learned"},
    "alibi": {"position": "alibi", "tie_embeddings": False},
    "rotary": {"position": "rotary", "rope_size": 12, "norm": "rmsnorm", "n_kv_head": 1},
}


def texts_of(ids: Any, name: str = "made up") -> Texts:
    tokens = Tokens(np.asarray(ids, np.int64), None)
    return Texts(calibration=tokens, quality=tokens, name=name)


def random_texts(vocab_size: int = 89, count: int = 150) -> Texts:
    return texts_of(np.random.default_rng(0).integers(0, vocab_size, count))


def silent(step: str, done: int, total: int) -> None:
    assert 0 <= done <= total


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_at_a_time_gives_the_logits_of_the_whole_model(
    kind: str, make_gpt: Callable[..., Any]
) -> None:
    gpt = make_gpt(**KINDS[kind])
    found = list(windows([random_texts().quality], length=40))
    layers: list[tuple[int, int]] = []
    source = GptSource.of_model(gpt)
    predict = streamed_predictor(gpt.config, source.weight, found, lambda *told: layers.append(told))
    assert layers == [(1, 2), (2, 2)]
    assert len({window.ids.size for window in found}) == 2  # the last one is shorter
    for window in found:
        with torch.no_grad():
            expected = gpt(torch.from_numpy(window.ids)[None])[0][0, window.first :].numpy()
        logits = np.concatenate(list(predict(window)))
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


def test_batches_are_cut_without_a_trace(
    make_gpt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpt = make_gpt()
    found = list(windows([random_texts().quality], length=16))
    read = GptSource.of_model(gpt).weight
    whole = streamed_predictor(gpt.config, read, found, lambda *told: None)
    monkeypatch.setattr("gpt_onnx.export.streamed.TOKENS_AT_ONCE", 50)
    monkeypatch.setattr("gpt_onnx.runtime.quality.predictors.BLOCK_BYTES", 4 * 89 * 3)
    cut = streamed_predictor(gpt.config, read, found, lambda *told: None)
    for window in found:
        blocks = list(cut(window))
        assert max(map(len, blocks)) == 3
        np.testing.assert_allclose(
            np.concatenate(blocks), np.concatenate(list(whole(window))), rtol=1e-4, atol=1e-5
        )


def test_a_float32_bundle_is_its_model(exported: Callable[..., Any], make_gpt: Callable[..., Any]) -> None:
    engine = OnnxGPT.load(exported().path, threads=1)
    found = measure_quality(GptSource.of_model(make_gpt()), engine, random_texts(), silent)
    comparison = found.comparison
    assert (comparison.tokens, found.window, found.text) == (149, 64, "made up")
    assert 0 <= comparison.kl.max < 1e-9
    assert comparison.same_top.value == 1
    assert comparison.ratio.value == pytest.approx(1, abs=1e-5)


def test_every_stage_is_told_before_its_work_begins(tmp_path: Path, make_gpt: Callable[..., Any]) -> None:
    ids, begun = tmp_path / "ids.npy", dict[str, int]()
    np.save(ids, np.arange(40_000) % 89)

    def told(step: str, done: int, total: int) -> None:
        begun.setdefault(step, done)

    export_bundle(
        make_gpt(n_embd=32, n_head=2, head_size=16),
        tmp_path / "bundle",
        precision="int4",
        head_precision="int8",
        quantizer="gptq",
        calibration=ids,
        check="quick",
        progress=told,
    )
    assert begun == dict.fromkeys(
        ["trace", "calibrate", "write", "hash", "load", "check", "fp32", "quality"], 0
    )


def test_another_models_distance_is_that_of_numpy(
    exported: Callable[..., Any], make_gpt: Callable[..., Any]
) -> None:
    other, engine = make_gpt(seed=1), OnnxGPT.load(exported().path, threads=1)
    texts = random_texts(count=64)
    found = measure_quality(GptSource.of_model(other), engine, texts, silent).comparison
    ids = texts.quality.ids
    with torch.no_grad():
        base = other.double()(torch.from_numpy(ids)[None])[0][0].numpy()
    other.float()
    test = engine.logits([ids])[0].astype(np.float64)
    p, q = (special.softmax(logits[:-1], axis=1) for logits in (base, test))
    right = np.arange(63), ids[1:]
    assert found.kl.mean.value == pytest.approx(stats.entropy(p, q, axis=1).mean(), rel=1e-4)
    assert found.ln_ratio.value == pytest.approx(float(np.log(p[right] / q[right]).mean()), rel=1e-4)
    assert found.same_top.value == pytest.approx(np.mean(p.argmax(1) == q.argmax(1)))


class Bigram(torch.nn.Module):
    """Logits of the next token, from the last one; those of the last position alone if asked."""

    def __init__(self, last: bool = False) -> None:
        super().__init__()
        self.last = last
        self.table = torch.nn.Embedding(31, 31)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        print("computing")  # must not reach stdout
        logits: torch.Tensor = self.table(input_ids)
        return logits[:, -1:] if self.last else logits


@pytest.mark.parametrize("last", [False, True])
def test_a_module_of_the_users_own_is_asked_window_by_window(
    last: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, texts = Bigram(last), random_texts(31, 600)
    engine = OnnxGPT.load(export_bundle(module, tmp_path / "bundle", check="none").path, threads=1)
    found = measure_quality(ModuleSource(module, ExportOptions()), engine, texts, silent)
    assert found.comparison.kl.max < 1e-9
    assert found.comparison.tokens == (2 if last else 599)
    assert found.notes() == (f"Quality was measured on {found.comparison.tokens} tokens, fewer than 20,480.",)
    assert capsys.readouterr().out == ""


def sotu_files() -> Any:
    from gpt_onnx.checkpoint import read_checkpoint

    return read_checkpoint(SOTU).tokenizer


def test_the_excerpts_are_long_enough_and_have_nothing_in_common() -> None:
    quality, calibration = (
        (EXCERPTS / f"{name}.txt").read_text(encoding="utf-8") for name in ("quality", "calibration")
    )
    # No tokenizer that cuts text into words first makes fewer tokens of it than there are words and signs.
    assert len(re.findall(r"\w+|[^\w\s]+", quality)) > MEASURED
    assert len(re.findall(r"\w+|[^\w\s]+", calibration)) > quality_texts.FEWEST_CALIBRATED
    assert not {line[:60] for line in quality.splitlines()} & {line[:60] for line in calibration.splitlines()}


def test_without_a_file_the_excerpts_are_read() -> None:
    texts = read_texts(sotu_files(), 4096, None, calibrates=True)
    assert (len(texts.quality), len(texts.calibration)) == (MEASURED + 1, quality_texts.CALIBRATED)
    assert texts.name == "State of the Union addresses, 2010 to 2021"
    assert texts.quality.sizes is not None
    sequences = calibration_sequences(texts, 512)
    assert [len(ids) for ids in sequences] == [512] * 64
    np.testing.assert_array_equal(np.concatenate(sequences), texts.calibration.ids)


def test_without_a_tokenizer_ids_are_random_and_it_is_said() -> None:
    texts = read_texts(None, 50, None)
    assert texts.name == "random ids: there is no tokenizer"
    assert len(texts.quality) == MEASURED + 1
    assert set(texts.quality.ids) == set(range(50))
    np.testing.assert_array_equal(texts.quality.ids, read_texts(None, 50, None).quality.ids)


def test_a_tokenizer_whose_tokens_the_model_lacks_gives_random_ids() -> None:
    assert read_texts(sotu_files(), 100, None).name.startswith("random ids: the tokenizer cannot express")


@pytest.mark.parametrize(("count", "calibrated"), [(60_000, 32_768), (40_000, 19_519), (20_481, 0)])
def test_the_first_part_of_a_file_calibrates_and_the_rest_measures(
    count: int, calibrated: int, tmp_path: Path
) -> None:
    np.save(tmp_path / "ids.npy", np.arange(count))
    texts = read_texts(None, 60_000, tmp_path / "ids.npy")
    assert texts.name == "ids.npy"
    np.testing.assert_array_equal(texts.calibration.ids, np.arange(calibrated))
    np.testing.assert_array_equal(texts.quality.ids, np.arange(calibrated, calibrated + MEASURED + 1))


def test_files_that_are_no_use_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "short.npy"
    np.save(path, np.arange(20_480))
    with pytest.raises(ConfigError, match=r"20,480 tokens and calibration with it needs at least 20,481"):
        read_texts(None, 60_000, path)
    with pytest.raises(ConfigError, match=r"needs at least 28,673 tokens; give a longer text"):
        read_texts(None, 60_000, path, calibrates=True)
    (tmp_path / "text.txt").write_bytes(b"abc\xff")
    with pytest.raises(InputError, match="not UTF-8 at byte 3"):
        read_texts(sotu_files(), 4096, tmp_path / "text.txt")
    with pytest.raises(InputError, match="no tokenizer"):
        read_texts(None, 4096, tmp_path / "text.txt")


def test_every_calibration_sequence_begins_as_the_tokenizer_begins_a_text() -> None:
    tokens = Tokens(np.arange(25), None)
    texts = Texts(calibration=tokens, quality=tokens, name="x", prefix=(7, 8))
    found = calibration_sequences(texts, 12)
    assert [row.tolist() for row in found] == [[7, 8, *range(10)], [7, 8, *range(10, 20)]]
    for length in (2, 28):
        with pytest.raises(ConfigError, match=f"make no sequence of {length}"):
            calibration_sequences(texts, length)


def quality_of(noise: float) -> Quality:
    generator, meter = np.random.default_rng(0), ComparisonMeter()
    base = generator.standard_normal((50, 9))
    meter.add(base, base + noise * generator.standard_normal(base.shape), generator.integers(0, 9, 50))
    return Quality(comparison=meter.result(), window=512, text="made up")


def test_a_bundle_too_far_from_its_model_is_refused() -> None:
    quality = quality_of(1.0)
    value = quality.comparison.kl.mean.value
    check_max_kl(quality, None, [])
    check_max_kl(quality, value, [])
    told = (
        rf"{value:.4g} and --max-kl is 0\.05; choose --block-size 16, a larger --max-kl or fp32 without it\.$"
    )
    with pytest.raises(ParityError, match=told) as failure:
        check_max_kl(quality, 0.05, ["--block-size 16"])
    assert failure.value.exit_code == 3


def test_the_record_and_its_line_say_against_what() -> None:
    quality = quality_of(0.0)
    assert quality.summary() == "KL mean 0 against fp32, perplexity x 1.0000 +- 0.0000, top-1 100.00 %"
    found = quality.to_json()
    assert (found["against"], found["text"], found["tokens"], found["tokens_wanted"]) == (
        "fp32",
        "made up",
        50,
        MEASURED,
    )
