"""Every decoder against the eager model in float64: whatever is appended, rewound or dropped."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpt_onnx.errors import BundleError, InputError
from gpt_onnx.runtime._cache import BLOCK
from gpt_onnx.runtime._session import Binding
from gpt_onnx.runtime._shared_cache import SharedCacheDecoder
from gpt_onnx.runtime.decoder import Decoder
from gpt_onnx.runtime.engine import OnnxGPT

VOCAB, FROZEN = 97, 32
TOLERANCE = 1e-5  # float32 itself is off by 1e-6 on logits of about 3

pytestmark = pytest.mark.filterwarnings("ignore::gpt_onnx.runtime._checks.LengthWarning")


@pytest.fixture(scope="module")
def engine(any_layout: Any) -> OnnxGPT:
    return OnnxGPT.load(any_layout.path, threads=1)


@pytest.fixture(scope="module")
def gqa(tiny_bundle: Any) -> OnnxGPT:
    return OnnxGPT.load(tiny_bundle().path, threads=1)


def ids_of(count: int, seed: int = 0) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, VOCAB, count)]


def assert_close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.lists(st.integers(0, 4), min_size=3, max_size=3), st.booleans()),
    st.tuples(st.just("step"), st.just([1, 1, 1]), st.booleans()),
    st.tuples(st.just("rewind"), st.lists(st.integers(0, 6), min_size=3, max_size=3), st.just(False)),
    st.tuples(st.just("keep"), st.permutations([0, 1, 2]), st.booleans()),
)


def check_append(
    decoder: Decoder, rows: list[list[int]], new: list[list[int]], keep_all: bool, tiny: Any
) -> None:
    """Append, and compare every row's logits with the eager model's."""
    logits = decoder.append(new, keep="all" if keep_all else "last")
    for row, added, found in zip(rows, new, logits, strict=True):
        row.extend(added)
        if not added:
            assert found.shape == (0, VOCAB)
            continue
        expected = tiny.logits(row)[-len(added) :]
        assert_close(found, expected if keep_all else expected[-1])


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(actions=st.lists(ACTIONS, min_size=1, max_size=6), seed=st.integers(0, 999))
def test_any_history_gives_the_eager_logits(
    engine: OnnxGPT, any_layout: Any, actions: Sequence[tuple[str, list[int], bool]], seed: int
) -> None:
    decoder = engine.decoder(3)
    rows: list[list[int]] = [[], [], []]
    random = np.random.default_rng(seed)
    for action, numbers, flag in actions:
        numbers = numbers[: len(rows)]
        if action in ("append", "step") and any(numbers):
            new = [random.integers(0, VOCAB, count).tolist() for count in numbers]
            check_append(decoder, rows, new, flag, any_layout)
        elif action == "rewind":
            rows = [row[: max(len(row) - count, 0)] for row, count in zip(rows, numbers, strict=True)]
            decoder.rewind([len(row) for row in rows])
        elif action == "keep":
            kept = [index for index in numbers if index < len(rows)][: len(rows) - flag] or [0]
            decoder.keep_rows(kept)
            rows = [rows[index] for index in kept]
        assert decoder.lengths == tuple(len(row) for row in rows)
    check_append(decoder, rows, [[5]] * len(rows), False, any_layout)


def test_keys_and_values_are_those_of_the_eager_model(engine: OnnxGPT, any_layout: Any) -> None:
    decoder, rows = engine.decoder(2), [ids_of(9), ids_of(4, seed=1)]
    decoder.append([rows[0][:7], rows[1][:1]])
    decoder.append([rows[0][7:], rows[1][1:]])
    caches = list(decoder.keys_and_values())
    if engine.bundle.manifest.graph.layout == "plain":
        assert caches == []
        return
    for row, ids in enumerate(rows):
        for found, expected in zip(caches, any_layout.cache(ids), strict=True):
            for part, whole in zip(found, expected, strict=True):
                assert part.shape == (2, 2, 9, 12)
                assert_close(part[row, :, : len(ids)], whole)
                assert not part[row, :, len(ids) :].any()


def test_neighbours_change_no_bit_of_a_prompt(engine: OnnxGPT) -> None:
    alone, together = engine.decoder(1), engine.decoder(3)
    prompt = ids_of(11)
    [expected] = alone.append([prompt], keep="all")
    found = together.append([ids_of(3, seed=1), prompt, ids_of(7, seed=2)], keep="all")[1]
    assert_close(found, expected)


def test_logits_are_copies(engine: OnnxGPT) -> None:
    decoder = engine.decoder(1)
    [first] = decoder.append([[1]])
    kept = first.copy()
    decoder.append([[2]])
    np.testing.assert_array_equal(first, kept)
    assert first.dtype == np.float32


def test_rewind_and_continue_equals_fresh(engine: OnnxGPT) -> None:
    ids, other = ids_of(10), ids_of(6, seed=3)
    rewound, fresh = engine.decoder(1), engine.decoder(1)
    rewound.append([ids[:5] + other])
    rewound.rewind([5])
    [found], [expected] = rewound.append([ids[5:]], keep="all"), fresh.append([ids], keep="all")
    assert_close(found, expected[5:])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1]], "1 row given; the decoder has 2"),
        ([[], []], "no row has a new token"),
        ([[1], [97]], "row 1 has the id 97 at index 0; ids must be from 0 to 96"),
        ([[1], [-1]], "row 1 has the id -1"),
        ([[1.5], [1]], "token ids are integers"),
        ([[[1]], [1]], "one list of token ids"),
        ([[2**70], [1]], "token ids are integers"),
        ([[True], [1]], "token ids are integers"),
        ([["ab"], "ab"], "token ids are integers"),
        ([[1], "ab"], "row 1 is a str; it must be a list of token ids"),
        ([1, 2], "row 0 is a int; it must be a list of token ids"),
        (None, "rows is None; give a list of token ids for each row"),
        (np.array(3), r"rows is array\(3\)"),
    ],
)
def test_what_cannot_be_appended_is_refused(gqa: OnnxGPT, rows: Any, message: str) -> None:
    decoder = gqa.decoder(2)
    with pytest.raises(InputError, match=message):
        decoder.append(rows)
    assert decoder.lengths == (0, 0)


@pytest.mark.parametrize(
    "lengths", [[4], [-1, 0], [0, 1], [0.0, 0.0], [1, 2, 3], [[1], [1, 2]], None, 0, "12"]
)
def test_rewinding_forward_or_below_zero_is_refused(gqa: OnnxGPT, lengths: Any) -> None:
    decoder = gqa.decoder(2)
    decoder.append([[1, 2, 3], []])
    with pytest.raises(InputError, match="rewind to"):
        decoder.rewind(lengths)


@pytest.mark.parametrize("rows", [[], [0, 0], [2], [-1]])
def test_keeping_no_or_unknown_rows_is_refused(gqa: OnnxGPT, rows: list[int]) -> None:
    with pytest.raises(InputError, match="cannot be kept of 2"):
        gqa.decoder(2).keep_rows(rows)


@pytest.mark.parametrize("rows", [None, 1, "01", [0.0], [[0]], [True]])
def test_rows_that_are_no_list_of_integers_cannot_be_kept(gqa: OnnxGPT, rows: Any) -> None:
    with pytest.raises(InputError, match=r"keep_rows of .* give a list of integers"):
        gqa.decoder(2).keep_rows(rows)


def test_row_numbers_may_come_from_numpy(gqa: OnnxGPT) -> None:
    decoder = gqa.decoder(np.int64(2))  # type: ignore[arg-type]
    decoder.append([[1], [2, 3]])
    decoder.keep_rows(np.array([1]))  # type: ignore[arg-type]
    assert decoder.lengths == (2,)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, None, "1", 2**40])
def test_a_batch_that_is_no_number_of_rows_is_refused(gqa: OnnxGPT, size: Any) -> None:
    with pytest.raises(InputError, match=r"batch_size is .*; it must be an integer from 1 to 65536"):
        gqa.decoder(size)


@pytest.mark.parametrize("capacity", [-1, 1.5, True, "9", 2**40])
def test_a_capacity_that_is_no_number_of_tokens_is_refused(gqa: OnnxGPT, capacity: Any) -> None:
    with pytest.raises(InputError, match=r"capacity is .*; it must be an integer from 0 to 16777216"):
        gqa.decoder(1, capacity)


def test_more_rows_than_a_frozen_batch_are_refused(tiny_bundle: Any) -> None:
    engine = OnnxGPT.load(tiny_bundle(seq_len=32, batch_size=3).path, threads=1)
    with pytest.raises(InputError, match="the batch has 4 rows; the graph is frozen to 3"):
        engine.decoder(4)


def test_an_unknown_keep_is_refused(gqa: OnnxGPT) -> None:
    with pytest.raises(InputError, match="keep is 'first'"):
        gqa.decoder(1).append([[1]], keep="first")
    with pytest.raises(InputError, match="keep is None"):
        gqa.decoder(1).append([[1]], keep=None)  # type: ignore[arg-type]


def test_a_frozen_length_is_the_limit(engine: OnnxGPT) -> None:
    if engine.limit is None:
        pytest.skip("this layout has no limit")
    decoder = engine.decoder(2)
    decoder.append([ids_of(FROZEN), ids_of(3)])
    with pytest.raises(InputError, match="row 0 would have 33 tokens and the maximum context window is 32"):
        decoder.append([[1], [1]])
    decoder.append([[], [1]])
    assert decoder.lengths == (FROZEN, 4)


def test_a_full_row_is_kept_while_others_go_on(tiny_bundle: Any) -> None:
    tiny = tiny_bundle(seq_len=32, batch_size=3)
    decoder, full, short = OnnxGPT.load(tiny.path, threads=1).decoder(2), ids_of(FROZEN), ids_of(2, seed=1)
    decoder.append([full, short])
    for token in (3, 4, 5):
        decoder.append([[], [token]])
    decoder.rewind([FROZEN - 1, 5])
    [last, _] = decoder.append([full[-1:], []])
    assert_close(last, tiny.logits(full)[-1])


@pytest.mark.parametrize("limit_block", [None, 16])
def test_the_cache_grows_past_its_capacity(gqa: OnnxGPT, tiny_bundle: Any, limit_block: int | None) -> None:
    tiny, ids = tiny_bundle(), ids_of(2 * BLOCK + 40)
    decoder = gqa.decoder(2, capacity=limit_block)
    assert isinstance(decoder, SharedCacheDecoder)
    assert decoder.capacity == BLOCK
    decoder.append([ids[: BLOCK - 2], ids[:5]])
    for token in ids[BLOCK - 2 : BLOCK + 3]:
        decoder.append([[token], []])
    assert decoder.capacity == 2 * BLOCK
    [last, _] = decoder.append([ids[BLOCK + 3 :], []])
    assert decoder.capacity == 3 * BLOCK
    assert_close(last, tiny.logits(ids)[-1])
    assert_close(decoder.append([[], [7]])[1], tiny.logits([*ids[:5], 7])[-1])


def test_entries_behind_the_valid_length_change_no_bit(gqa: OnnxGPT) -> None:
    clean, dirty = gqa.decoder(2), gqa.decoder(2)
    assert isinstance(dirty, SharedCacheDecoder)
    for cache in dirty._caches:
        cache[:] = np.nan
    rows = [ids_of(7), ids_of(3, seed=1)]
    for new in (rows, [[1], [2]], [[3, 4, 5], [6]], [[7], [8]]):
        for found, expected in zip(dirty.append(new), clean.append(new), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_prompt_in_blocks_equals_the_whole(engine: OnnxGPT, any_layout: Any, monkeypatch: Any) -> None:
    ids = ids_of(30)
    monkeypatch.setattr("gpt_onnx.runtime.decoder.BLOCK_LENGTHS", (4, 4))
    [every] = engine.decoder(1).append([ids], keep="all")
    rows = engine.decoder(2).append([ids[:3], ids])
    assert_close(every, any_layout.logits(ids))
    assert_close(rows[0], any_layout.logits(ids[:3])[-1])
    assert_close(rows[1], any_layout.logits(ids)[-1])


def test_an_interrupted_append_leaves_the_decoder_as_it_was(
    engine: OnnxGPT, any_layout: Any, monkeypatch: Any
) -> None:
    ids, calls, run = ids_of(20), itertools.count(), Binding.run
    decoder = engine.decoder(2)
    decoder.append([ids[:2], ids[:3]])

    def interrupted(binding: Binding) -> None:
        run(binding)
        if next(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr("gpt_onnx.runtime.decoder.BLOCK_LENGTHS", (4, 4))
    monkeypatch.setattr(Binding, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        decoder.append([ids[2:], ids[3:9]])
    assert decoder.lengths == (2, 3)
    found = decoder.append([ids[2:5], ids[3:9]])
    assert_close(found[0], any_layout.logits(ids[:5])[-1])
    assert_close(found[1], any_layout.logits(ids[:9])[-1])


def test_a_failed_run_says_which_graph(gqa: OnnxGPT, monkeypatch: Any) -> None:
    class Failing:
        def run_with_iobinding(self, io: object) -> None:
            raise RuntimeError("out of memory\nat line 3")

    decoder = gqa.decoder(1)
    monkeypatch.setattr(gqa._graphs.main, "raw", Failing())
    with pytest.raises(BundleError, match=r"model\.onnx failed on cpu: out of memory$"):
        decoder.append([[1]])


def test_holes_in_a_concatenated_cache_are_squeezed_out(tiny_bundle: Any) -> None:
    tiny = tiny_bundle("portable")
    decoder = OnnxGPT.load(tiny.path, threads=1).decoder(3)
    rows: list[list[int]] = [[], [], []]
    logits: list[Any] = []
    for index, token in enumerate(ids_of(240)):
        new = [[token] if row == index % 3 else [] for row in range(3)]
        rows[index % 3].append(token)
        logits = decoder.append(new)
    assert decoder._mask.shape[1] < 2 * 80 + 70  # type: ignore[attr-defined]
    assert_close(logits[2], tiny.logits(rows[2])[-1])
