from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpt_onnx.errors import InputError
from gpt_onnx.runtime.bench.compare import _baseline
from gpt_onnx.runtime.bench.plan import BenchPlan, Point, fit_prompts


def test_prompts_are_the_same_at_every_call_and_differ_between_seeds_and_rows() -> None:
    plan, point = BenchPlan(), Point(batch_size=2, prompt_tokens=20)
    first, second = plan.rows(point, 97)
    assert plan.rows(point, 97) == [first, second]
    assert first != second
    assert BenchPlan(seed=1).rows(point, 97)[0] != first
    assert all(0 <= token < 97 for token in first + second)


def test_prompts_that_fit_are_left_alone() -> None:
    assert fit_prompts(BenchPlan(prompt_tokens=(8, 17), new_tokens=16), [None, 32]) == ((8, 17), [])
    assert fit_prompts(BenchPlan(prompt_tokens=(8, 4000)), [None, None]) == ((8, 4000), [])


@pytest.mark.parametrize(
    ("trained", "longest"), [([], 4096), ([None], 4096), ([256], 4096), ([2048, None], 8192)]
)
def test_positions_without_an_end_do_not_make_prompts_without_an_end(
    trained: list[int | None], longest: int
) -> None:
    plan = BenchPlan(prompt_tokens=(8, 999_999_999))
    lengths, notes = fit_prompts(plan, [None], trained)
    assert lengths == (8, longest)
    assert notes == [
        f"prompts of 999999999 tokens were cut to {longest}: "
        "longer ones are not measured where positions have no end"
    ]


def test_a_context_in_which_no_step_can_be_timed_gets_a_remedy_that_exists() -> None:
    with pytest.raises(InputError, match=r"context window is 1, .* measure a bundle with a longer one"):
        fit_prompts(BenchPlan(prompt_tokens=(1,), new_tokens=2), [1])


def test_longer_prompts_are_cut_to_the_shortest_context_and_it_is_said() -> None:
    lengths, notes = fit_prompts(BenchPlan(prompt_tokens=(8, 64, 128), new_tokens=16), [64, None, 32])
    assert lengths == (8, 17)  # 17 + 16 new tokens, the last of which is never fed: 32
    assert len(notes) == 2
    assert "64 tokens were cut to 17" in notes[0]


def test_a_context_shorter_than_the_new_tokens_is_refused() -> None:
    with pytest.raises(InputError, match=r"64 new tokens .* context window is 32; ask for at most 32"):
        fit_prompts(BenchPlan(new_tokens=64), [32])


def test_as_many_new_tokens_as_the_context_holds_leave_one_token_of_prompt() -> None:
    assert fit_prompts(BenchPlan(new_tokens=32), [32])[0] == (1,)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"prompt_tokens": ()}, "prompt_tokens"),
        ({"prompt_tokens": (0,)}, "prompt_tokens"),
        ({"new_tokens": 1}, "new_tokens is 1; it must be an integer from 2 to 65536"),
        ({"new_tokens": 10**9}, "new_tokens is 1000000000"),
        ({"batch_sizes": (10**9,)}, r"batch_sizes is \(1000000000,\); .* at most 1024"),
        ({"repetitions": 10**9}, "repetitions is 1000000000"),
        ({"batch_sizes": (1, 0)}, "batch_sizes"),
        ({"batch_sizes": ()}, "batch_sizes"),
        ({"repetitions": -1}, "repetitions is -1"),
        ({"threads": 0}, "threads is 0"),
        ({"repetitions": True}, "repetitions is True"),
    ],
)
def test_numbers_out_of_range_are_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        BenchPlan(**changes)


def test_every_number_of_sequences_is_measured_at_every_length_once() -> None:
    points = BenchPlan(batch_sizes=(4, 1, 4)).points([9, 17])
    assert [(point.batch_size, point.prompt_tokens) for point in points] == [(4, 9), (4, 17), (1, 9), (1, 17)]


def test_loading_is_repeated_at_most_three_times() -> None:
    assert [BenchPlan(repetitions=count).starts for count in (1, 2, 3, 50)] == [1, 2, 3, 3]


@pytest.mark.parametrize(
    ("kinds", "asked", "expected"),
    [
        (("bundle", "bundle"), None, "0"),
        (("bundle", "bundle", "eager"), None, "2"),
        (("bundle", "peer"), None, "0"),
        (("bundle",), None, None),
        (("bundle", "bundle"), "1", "1"),
    ],
)
def test_others_are_compared_with_whom_the_user_names_or_eager_or_the_first(
    kinds: tuple[str, ...], asked: str | None, expected: str | None
) -> None:
    entrants: list[Any] = [SimpleNamespace(name=str(at), kind=kind) for at, kind in enumerate(kinds)]
    assert _baseline(entrants, asked) == expected
