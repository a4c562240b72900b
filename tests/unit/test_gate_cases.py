"""Which cases a level looks at, for each form of bundle."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpt_onnx.bundle import Manifest
from gpt_onnx.export.gate.cases import LEVELS, Facts, batches_of, lengths_of, sequences_of

STANDARD = LEVELS["standard"]
ManifestMaker = Callable[..., Manifest]


def facts(**changes: object) -> Facts:
    values: dict[str, object] = {
        "vocab_size": 50,
        "layout": "dynamic",
        "context_length": 512,
        "limit": None,
        "position_limit": None,
        "only_length": None,
        "batch_size": None,
    }
    return Facts(**(values | changes))  # type: ignore[arg-type]


def test_standard_looks_at_the_promised_lengths_and_twice_the_context() -> None:
    assert lengths_of(STANDARD, facts()) == [1, 2, 3, 7, 16, 33, 64, 129, 512, 1024]
    assert batches_of(STANDARD, facts()) == [1, 3]


def test_learned_positions_are_looked_at_up_to_their_end() -> None:
    assert lengths_of(STANDARD, facts(context_length=48, limit=48)) == [1, 2, 3, 7, 16, 33, 48]


def test_an_unknown_context_leaves_the_fixed_lengths() -> None:
    assert lengths_of(STANDARD, facts(context_length=None))[-1] == 129


def test_a_frozen_graph_is_looked_at_up_to_its_length_and_batch() -> None:
    frozen = facts(limit=24, batch_size=2)
    assert lengths_of(STANDARD, frozen) == [1, 2, 3, 7, 16, 24]
    assert batches_of(STANDARD, frozen) == [1, 2]


def test_a_graph_of_one_length_only_is_looked_at_there() -> None:
    only = facts(layout="plain", limit=24, only_length=24)
    assert lengths_of(STANDARD, only) == [24]
    assert only.within(3) == 24


def test_facts_come_from_the_manifest(make_manifest: ManifestMaker) -> None:
    dynamic = Facts.of(make_manifest("dynamic"), causal=True)
    assert dynamic.limit is None
    assert dynamic.has_cache
    static = Facts.of(make_manifest("static"), causal=True)
    assert (static.limit, static.batch_size, static.only_length) == (16, 1, None)
    assert not Facts.of(make_manifest("plain"), causal=False).has_cache


def test_sequences_have_random_real_and_edge_ids() -> None:
    named = sequences_of(100, 50, [[3, 4], [5]], count=3)
    assert list(named) == ["random", "text", "edges"]
    assert named["text"][:7] == (3, 4, 5, 3, 4, 5, 3)
    assert {0, 49} <= set(named["edges"])
    assert all(len(ids) == 100 and min(ids) >= 0 and max(ids) < 50 for ids in named.values())


@pytest.mark.parametrize("count", [1, 3, 8])
def test_there_are_as_many_sequences_as_the_largest_batch(count: int) -> None:
    named = sequences_of(40, 50, None, count)
    assert len(named) >= count
    assert len(set(named.values())) == len(named)


def test_the_same_cases_come_every_time() -> None:
    assert sequences_of(40, 50, None, 3) == sequences_of(40, 50, None, 3)


def test_a_vocabulary_of_one_token_has_cases() -> None:
    assert set(sequences_of(30, 1, None, 2)["edges"]) == {0}


def test_a_longer_sequence_begins_with_the_shorter() -> None:
    short, long = sequences_of(20, 50, [[1, 2, 3]], 3), sequences_of(200, 50, [[1, 2, 3]], 3)
    assert all(long[name][:20] == ids for name, ids in short.items())


def test_a_large_models_float64_work_is_bounded() -> None:
    tiny, large = facts(parameters=10**6), facts(parameters=1_100_000_000)
    assert tiny.affordable(3) == 10**6
    assert 2048 < large.affordable() < 4096
    assert large.affordable(3) < 2048
