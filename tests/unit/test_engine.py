"""The engine: logits of padded batches, and generation that does not depend on the company of other rows."""

from __future__ import annotations

import shutil
import signal
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt_onnx.bundle import open_bundle, seal
from gpt_onnx.errors import BundleError, GptOnnxError, InputError
from gpt_onnx.runtime import Generation, OnnxGPT, Sampling
from gpt_onnx.runtime._checks import LengthWarning

VOCAB, CONTEXT, FROZEN = 97, 64, 32
TOLERANCE = 1e-5  # float32 itself is off by 1e-6 on logits of about 3
GREEDY = Sampling(temperature=0.0)
FREE = Sampling(temperature=1.0, top_k=0)

pytestmark = pytest.mark.filterwarnings("ignore::gpt_onnx.runtime._checks.LengthWarning")


@pytest.fixture(scope="module")
def engine(any_layout: Any) -> OnnxGPT:
    return OnnxGPT.load(any_layout.path, threads=1)


@pytest.fixture(scope="module")
def gqa(tiny_bundle: Any) -> OnnxGPT:
    return OnnxGPT.load(tiny_bundle().path, threads=1)


@pytest.fixture(scope="module")
def learned(tiny_bundle: Any) -> OnnxGPT:
    return OnnxGPT.load(tiny_bundle(config={"position": "learned"}).path, threads=1)


def ids_of(count: int, seed: int = 0) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, VOCAB, count)]


def assert_close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


def greedy(tiny: Any, prompt: Sequence[int], count: int) -> tuple[int, ...]:
    """What the eager model in float64 generates, computing everything anew at each token."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(tiny.logits(ids)[-1].argmax()))
    return tuple(ids[len(prompt) :])


# --- logits ---------------------------------------------------------------------------------------


def test_logits_are_those_of_the_eager_model(engine: OnnxGPT, any_layout: Any) -> None:
    batch = [ids_of(9, seed) for seed in range(5)]  # more rows than a frozen batch has
    found = engine.logits(batch)
    assert found.shape == (5, 9, VOCAB)
    assert found.dtype == np.float32
    for row, ids in zip(found, batch, strict=True):
        assert_close(row, any_layout.logits(ids))


def test_padding_on_either_side_equals_solo_runs(engine: OnnxGPT, any_layout: Any) -> None:
    ids = np.array([ids_of(9, seed) for seed in range(3)])
    mask = np.ones((3, 9), np.int64)
    mask[0, :4], mask[1, 5:] = 0, 0
    found = engine.logits(ids, mask)
    assert_close(found[0, 4:], any_layout.logits(ids[0, 4:]))
    assert_close(found[1, :5], any_layout.logits(ids[1, :5]))
    assert not found[0, :4].any()
    assert not found[1, 5:].any()


def test_what_stands_in_padding_changes_no_bit(engine: OnnxGPT) -> None:
    ids = np.array([ids_of(9, seed) for seed in range(3)])
    mask = np.ones((3, 9), np.int64)
    mask[0, :4], mask[1, 5:] = 0, 0
    other = np.where(mask == 1, ids, 96)
    np.testing.assert_array_equal(engine.logits(ids, mask), engine.logits(other, mask))


def test_a_row_of_padding_alone_has_zero_logits(engine: OnnxGPT) -> None:
    found = engine.logits([[1, 2], [3, 4]], [[0, 0], [1, 1]])
    assert not found[0].any()
    assert np.isfinite(found[1]).all()
    assert not engine.logits([[1, 2]], [[0, 0]]).any()


def test_ragged_rows_are_taken_as_padded_on_the_right(gqa: OnnxGPT) -> None:
    found = gqa.logits([[1, 2, 3], [4]])
    assert found.shape == (2, 3, VOCAB)
    np.testing.assert_array_equal(found[1, :1], gqa.logits([[4]])[0])
    assert not found[1, 1:].any()


def test_one_flat_list_is_a_batch_of_one(gqa: OnnxGPT) -> None:
    np.testing.assert_array_equal(gqa.logits([1, 2, 3]), gqa.logits([[1, 2, 3]]))


def test_logits_repeat_bit_for_bit(gqa: OnnxGPT) -> None:
    ids = [ids_of(33)]
    first = gqa.logits(ids)
    for _ in range(5):
        np.testing.assert_array_equal(gqa.logits(ids), first)


@pytest.mark.parametrize(
    ("ids", "mask", "message"),
    [
        ([], None, "row is empty; give at least one token id"),
        ([[]], None, "row 0 is empty"),
        ([[1], []], None, "row 1 is empty"),
        ([[1, 97]], None, "row 0 has the id 97 at index 1; ids must be from 0 to 96"),
        ([[-1]], None, "row 0 has the id -1"),
        ([[0.0]], None, "token ids are integers"),
        ([["a"]], None, "token ids are integers"),
        ([[[1]]], None, "row 0 has 2 dims"),
        (np.array(3), None, "row is a ndarray"),
        (None, None, "row is a NoneType"),
        ([[1], "ab"], None, "row 1 is a str"),
        ([[10**5000]], None, "such as a int; token ids are integers"),
        ([[1, 2], [3, 4]], [[1], [1, 1]], "attention_mask has rows of unequal length"),
        ("abc", None, "row is a str"),
        (7, None, "row is a int"),
        (np.zeros((1, 2)), None, "token ids are integers"),
        ([[1, 2]], [[1]], r"attention_mask has shape \(1, 1\); input_ids has \(1, 2\)"),
        ([[1, 2]], [1, 1], "attention_mask has shape"),
        ([[1, 2]], [[1, 2]], "attention_mask holds something else than 0 and 1"),
        ([[1, 2]], [[0.5, 1]], "attention_mask holds something else than 0 and 1"),
    ],
)
def test_bad_ids_and_masks_are_refused(gqa: OnnxGPT, ids: Any, mask: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        gqa.logits(ids, mask)


def test_learned_positions_end_at_the_context(learned: OnnxGPT, gqa: OnnxGPT) -> None:
    assert (learned.limit, gqa.limit) == (CONTEXT, None)
    assert np.isfinite(learned.logits([ids_of(CONTEXT)])).all()
    with pytest.raises(InputError, match="65 tokens and the maximum context window is 64"):
        learned.logits([ids_of(CONTEXT + 1)])


def test_going_past_the_trained_length_warns_once(tiny_bundle: Any) -> None:
    engine = OnnxGPT.load(tiny_bundle().path, threads=1)
    with pytest.warns(LengthWarning, match="has 65 tokens and the model was trained on 64"):
        engine.logits([ids_of(CONTEXT + 1)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.logits([ids_of(CONTEXT + 2)])


# --- generation -----------------------------------------------------------------------------------


def test_greedy_tokens_are_those_of_the_eager_model(engine: OnnxGPT, any_layout: Any) -> None:
    prompts = [ids_of(5), ids_of(1, seed=1), ids_of(9, seed=2), ids_of(3, seed=3)]
    found = engine.generate(prompts, 12, GREEDY)
    assert found == [Generation(ids=greedy(any_layout, p, 12), finish_reason="length") for p in prompts]


def test_a_batch_of_unequal_prompts_equals_its_solo_runs(engine: OnnxGPT) -> None:
    prompts = [ids_of(5), ids_of(1, seed=1), ids_of(9, seed=2), ids_of(3, seed=3)]
    stops = range(0, VOCAB, 9)  # so that rows end at different steps
    together = engine.generate(prompts, 20, FREE, generator=np.random.default_rng(7), stop_ids=stops)
    children = np.random.default_rng(7).spawn(len(prompts))
    alone = [
        engine.generate(prompt, 20, FREE, generator=[child], stop_ids=stops)[0]
        for prompt, child in zip(prompts, children, strict=True)
    ]
    assert together == alone
    assert len({len(generation.ids) for generation in together}) > 1


def test_rows_of_a_batch_draw_independently(gqa: OnnxGPT) -> None:
    found = gqa.generate([[1, 2, 3]] * 4, 16, FREE, generator=np.random.default_rng(0))
    assert len({generation.ids for generation in found}) == 4


def test_a_generator_repeats_a_generation(gqa: OnnxGPT) -> None:
    first, second, other = (
        gqa.generate([1, 2], 16, FREE, generator=np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert first == second != other


def test_a_stream_gives_the_tokens_of_generate(engine: OnnxGPT) -> None:
    stream = engine.stream(ids_of(4), 10, FREE, generator=np.random.default_rng(3))
    assert stream.finish_reason is None
    tokens = tuple(stream)
    [expected] = engine.generate(ids_of(4), 10, FREE, generator=np.random.default_rng(3))
    assert tokens == expected.ids
    assert stream.generation == expected


def test_a_stop_id_ends_a_row_and_is_not_part_of_it(gqa: OnnxGPT) -> None:
    [whole] = gqa.generate([1, 2], 10, GREEDY)
    stop = whole.ids[4]
    [found] = gqa.generate([1, 2], 10, GREEDY, stop_ids=[stop])
    assert found == Generation(ids=whole.ids[: whole.ids.index(stop)], finish_reason="stop")


def test_end_of_text_ends_a_row_unless_it_is_ignored(gqa: OnnxGPT, monkeypatch: Any) -> None:
    [whole] = gqa.generate([1, 2], 10, GREEDY)
    monkeypatch.setattr(gqa, "eos_ids", frozenset({whole.ids[2]}))
    [found] = gqa.generate([1, 2], 10, GREEDY, stop_ids=[whole.ids[2]])
    assert found == Generation(ids=whole.ids[: whole.ids.index(whole.ids[2])], finish_reason="eos")
    assert gqa.generate([1, 2], 10, GREEDY, ignore_eos=True) == [whole]


def test_no_new_tokens_are_an_empty_generation(gqa: OnnxGPT) -> None:
    assert gqa.generate([[1], [2]], 0) == [Generation(ids=(), finish_reason="length")] * 2
    stream = gqa.stream([1], 0)
    assert list(stream) == []
    assert stream.finish_reason == "length"


def test_ids_that_are_not_allowed_are_never_chosen(gqa: OnnxGPT) -> None:
    [below] = gqa.generate([1], 40, FREE, allowed_vocab=10)
    even = np.arange(VOCAB) % 2 == 0
    [masked] = gqa.generate([1], 40, FREE, allowed_vocab=even)
    assert max(below.ids) < 10
    assert all(token % 2 == 0 for token in masked.ids)


def test_the_repetition_penalty_looks_at_prompt_and_text(gqa: OnnxGPT) -> None:
    sampling = Sampling(temperature=0.0, repetition_penalty=1e6)
    [found] = gqa.generate([1, 2, 3], 40, sampling)
    assert len({1, 2, 3, *found.ids}) == 43


def test_learned_positions_stop_at_the_context(learned: OnnxGPT) -> None:
    [found] = learned.generate(ids_of(60), 20, GREEDY)
    assert (len(found.ids), found.finish_reason) == (5, "context")  # the last one needs no room


def test_a_sliding_window_goes_on_with_its_last_half(tiny_bundle: Any) -> None:
    tiny = tiny_bundle(seq_len=FROZEN, batch_size=3)
    engine, prompt = OnnxGPT.load(tiny.path, threads=1), ids_of(30)
    [found] = engine.generate(prompt, 30, GREEDY, on_context_end="slide")
    ids, window = list(prompt), list(prompt)
    while len(ids) < len(prompt) + 30:
        if len(window) > FROZEN:
            window = window[-(FROZEN // 2) :]
        ids.append(int(tiny.logits(window)[-1].argmax()))
        window.append(ids[-1])
    assert found.ids == tuple(ids[len(prompt) :])


def test_rows_slide_independently(engine: OnnxGPT) -> None:
    prompts = [ids_of(28), ids_of(3, seed=1), ids_of(15, seed=2)]
    together = engine.generate(prompts, 80, GREEDY, on_context_end="slide")
    assert together == [engine.generate(p, 80, GREEDY, on_context_end="slide")[0] for p in prompts]
    assert {generation.finish_reason for generation in together} == {"length"}


def test_without_a_limit_the_window_slides_at_the_trained_length(gqa: OnnxGPT) -> None:
    longest = 0
    original = gqa.decoder

    def watched(*args: Any) -> Any:
        decoder = original(*args)

        def watching(method: Any) -> Any:
            def call(*arguments: Any, **named: Any) -> Any:
                nonlocal longest
                logits = method(*arguments, **named)
                longest = max(longest, *decoder.lengths)
                return logits

            return call

        for name in ("extend", "step"):
            setattr(decoder, name, watching(getattr(decoder, name)))
        return decoder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gqa, "decoder", watched)
        gqa.generate(ids_of(70), 40, GREEDY, on_context_end="slide")
    assert longest == CONTEXT


def test_a_prompt_beyond_the_window_is_refused_or_slides(learned: OnnxGPT) -> None:
    prompt = ids_of(70)
    with pytest.raises(InputError, match="prompt 0 has 70 tokens and the maximum context window is 64"):
        learned.generate(prompt, 5)
    [found] = learned.generate(prompt, 5, GREEDY, on_context_end="slide")
    assert found.ids[0] == learned.generate(prompt[-64:], 1, GREEDY)[0].ids[0]


def test_a_cancelled_generation_says_so_and_keeps_its_tokens(gqa: OnnxGPT) -> None:
    steps = iter([False, False, False, True])
    found = gqa.generate([[1], [2]], 10, GREEDY, cancelled=lambda: next(steps))
    assert [(len(g.ids), g.finish_reason) for g in found] == [(3, "cancelled")] * 2


def test_a_closed_stream_is_cancelled(gqa: OnnxGPT) -> None:
    for taken in (0, 2):
        stream = gqa.stream([1, 2], 10, GREEDY)
        first = [next(stream) for _ in range(taken)]
        stream.close()
        assert list(stream) == []
        assert stream.generation == Generation(ids=tuple(first), finish_reason="cancelled")


@pytest.mark.parametrize(
    ("prompt", "count", "options", "message"),
    [
        ([], 5, {}, "prompt is empty"),
        ([[1], []], 5, {}, "prompt 1 is empty"),
        ([97], 5, {}, "prompt 0 has the id 97"),
        ([1], -1, {}, "max_new_tokens is -1; it must be an integer of at least 0"),
        ([1], 1.5, {}, "max_new_tokens is 1.5"),
        ([1], True, {}, "max_new_tokens is True"),
        ([1], 5, {"stop_ids": [97]}, "stop_ids has the id 97"),
        ([1], 5, {"on_context_end": "wrap"}, "on_context_end is 'wrap'"),
        ([1], 5, {"allowed_vocab": np.ones(5, np.bool_)}, r"allowed_vocab has shape \(5,\)"),
        ([1], 5, {"allowed_vocab": 0}, "none of the 97 token ids is allowed"),
        ([1], 5, {"generator": []}, "0 random generators for 1 row; give one a row"),
        ([1], 5, {"generator": 3}, "generator is 3; give a numpy"),
        ([1], 5, {"generator": [3]}, r"generator is \[3\]"),
        ([1], np.True_, {}, "max_new_tokens is"),
        ([1], 5, {"stop_ids": 3}, "stop_ids is 3; it must be a list"),
        ([1], 5, {"stop_ids": "ab"}, "stop_ids is 'ab'"),
        ([1], 5, {"stop_ids": np.array(3)}, "stop_ids is array"),
        ([1], 5, {"on_context_end": None}, "on_context_end is None"),
        ([1], 5, {"allowed_vocab": True}, "allowed_vocab is True"),
        ([1], 5, {"allowed_vocab": 1.5}, "allowed_vocab is 1.5"),
        ([1], 5, {"ignore_eos": "no"}, "ignore_eos is 'no'; it must be True or False"),
        ([1], 5, {"cancelled": 3}, "cancelled is 3; it must be a function"),
        ([1], 5, {"sampling": 3}, "sampling is 3; it must be a Sampling"),
        ([1], 5, {"seed": 3}, "there is no option 'seed'; the options are stop_ids, generator"),
    ],
)
def test_bad_requests_are_refused_before_anything_runs(
    gqa: OnnxGPT, prompt: Any, count: Any, options: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        gqa.generate(prompt, count, **options)
    with pytest.raises(InputError):
        gqa.stream(prompt, count, **options)


# --- loading and trouble --------------------------------------------------------------------------


def copy_with(source: Path, destination: Path, edit: Any) -> Path:
    """Copy a bundle, change its weights, and seal it again."""
    bundle = open_bundle(source)
    for name in bundle.manifest.files:
        (destination / name).parent.mkdir(parents=True, exist_ok=True)
        (destination / name).write_bytes((source / name).read_bytes())
    assert bundle.manifest.graph.data is not None
    data = destination / bundle.manifest.graph.data
    data.write_bytes(edit(bytearray(data.read_bytes())))
    seal(destination, bundle.manifest)
    return destination


def test_nan_weights_are_an_error_and_not_token_zero(tiny_bundle: Any, tmp_path: Path) -> None:
    def poison(data: bytearray) -> bytearray:
        data[:] = np.full(len(data) // 4, np.nan, np.float32).tobytes().ljust(len(data), b"\0")
        return data

    engine = OnnxGPT.load(copy_with(tiny_bundle().path, tmp_path / "nan", poison), threads=1)
    with pytest.raises(BundleError, match=r"returned NaN or infinite logits \(row 0, new token 0\)"):
        engine.generate([1, 2], 3, GREEDY)
    with pytest.raises(BundleError, match="export it again"):
        engine.logits([1, 2])


def test_a_flipped_bit_is_found_before_anything_runs(tiny_bundle: Any, tmp_path: Path) -> None:
    path = copy_with(tiny_bundle().path, tmp_path / "flipped", lambda data: data)
    data = path / "onnx/model.onnx_data"
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.write_bytes(content)
    with pytest.raises(BundleError, match=r"model\.onnx_data is damaged"):
        OnnxGPT.load(path)
    assert OnnxGPT.load(path, check_hashes=False).provider == "cpu"


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2", 5000, 10**14])
def test_bad_threads_are_refused(tiny_bundle: Any, threads: Any) -> None:
    with pytest.raises(InputError, match="threads is"):
        OnnxGPT.load(tiny_bundle().path, threads=threads)


def test_the_number_of_threads_may_come_from_numpy(tiny_bundle: Any) -> None:
    assert OnnxGPT.load(tiny_bundle().path, threads=np.int64(1)).threads == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [3, None, b"bundle", "", "a\0b"])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(InputError, match=r"path is .*; it must be a path"):
        OnnxGPT.load(path)


def test_a_graph_that_onnxruntime_refuses_is_a_bundle_error(make_bundle: Any) -> None:
    path = make_bundle("gqa", "dynamic", "gqa")  # its GroupQueryAttention lacks inputs
    with pytest.raises(GptOnnxError, match=r"\."):
        OnnxGPT.load(path, threads=1).logits([[1]])


def test_ctrl_c_interrupts_a_long_prompt_and_the_engine_goes_on(gqa: OnnxGPT) -> None:
    expected = gqa.logits([[1, 2, 3]])
    decoder = gqa.decoder(1, capacity=200_000)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    started = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            decoder.append([ids_of(200_000)])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert time.monotonic() - started < 30
    assert decoder.lengths == (0,)
    np.testing.assert_array_equal(gqa.logits([[1, 2, 3]]), expected)


def test_two_engines_and_two_decoders_do_not_disturb_each_other(tiny_bundle: Any, gqa: OnnxGPT) -> None:
    other = OnnxGPT.load(tiny_bundle().path, threads=2)
    first, second, third = gqa.decoder(1), gqa.decoder(1), other.decoder(1)
    for decoder, ids in ((first, [1, 2, 3]), (second, [4]), (third, [1, 2, 3])):
        decoder.append([ids])
    [a], [b], [c] = first.append([[5]]), second.append([[5]]), third.append([[5]])
    assert_close(a, c)
    assert_close(a, gqa.logits([[1, 2, 3, 5]])[0, -1])
    assert_close(b, gqa.logits([[4, 5]])[0, -1])


def test_an_unloaded_engine_loads_again_when_it_is_used(tiny_bundle: Any) -> None:
    engine = OnnxGPT.load(tiny_bundle().path, threads=1)
    logits, started = engine.logits([ids_of(9)]), engine.stream(ids_of(5), 4, GREEDY, ignore_eos=True)
    first = next(started)
    engine.unload()
    assert (engine.provider, engine.threads) == ("cpu", 1)
    rest = list(started)  # what is on its way goes on
    assert engine.generate([ids_of(5)], 4, GREEDY, ignore_eos=True)[0].ids == (first, *rest)
    engine.unload()
    assert engine.logits([ids_of(9)]).tobytes() == logits.tobytes()


def test_an_unloaded_engine_is_found_from_another_folder(
    tiny_bundle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny_bundle().path
    monkeypatch.chdir(path.parent)
    engine = OnnxGPT.load(path.name, threads=1)
    engine.unload()
    monkeypatch.chdir(tmp_path)
    assert (engine.vocab_size, engine.limit) == (VOCAB, None)
    assert engine.logits([[1, 2]]).shape == (1, 2, VOCAB)


def test_a_profile_is_ended_before_an_engine_is_unloaded(tiny_bundle: Any, tmp_path: Path) -> None:
    engine = OnnxGPT.load(tiny_bundle().path, threads=1, profile=tmp_path / "prof")
    with pytest.raises(InputError, match="end_profiles"):
        engine.unload()
    assert all(path.is_file() for path in engine.end_profiles())
    engine.unload()
    assert engine.logits([[1, 2]]).shape == (1, 2, VOCAB)


def test_an_unloaded_engine_refuses_what_became_another_bundle(tiny_bundle: Any, tmp_path: Path) -> None:
    shutil.copytree(tiny_bundle().path, tmp_path / "b")
    engine = OnnxGPT.load(tmp_path / "b", threads=1)
    engine.unload()
    shutil.rmtree(tmp_path / "b")
    shutil.copytree(tiny_bundle(config={"position": "learned"}).path, tmp_path / "b")
    with pytest.raises(BundleError, match="another bundle"):
        engine.logits([ids_of(3)])
    data = tmp_path / "b" / "onnx" / "model.onnx_data"
    data.write_bytes(bytes(data.stat().st_size))
    with pytest.raises(BundleError, match="SHA-256"):
        engine.logits([ids_of(3)])
