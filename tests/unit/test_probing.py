"""What running a module tells: vocabulary, positions that come out, the longest sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gpt_onnx.errors import ExportError
from gpt_onnx.export.probing import LONGEST_PROBE, LogitsOnly, named_context, probe

V = 7


class Limited(nn.Module):
    """Takes at most ``longest`` tokens; returns whatever ``give`` makes of the logits."""

    def __init__(self, longest: int | None = None, give: Any = None) -> None:
        super().__init__()
        self.table = nn.Embedding(V, V)
        self.longest, self.give, self.seen = longest, give or (lambda logits: logits), list[int]()

    def forward(self, idx: Tensor) -> Any:
        self.seen.append(idx.shape[1])
        if self.longest is not None and idx.shape[1] > self.longest:
            raise IndexError("index out of range in self")
        return self.give(self.table(idx))


@dataclass
class Output:
    logits: Tensor
    loss: None = None


class Dictionary(dict[str, Any]):
    """As transformers' ModelOutput: a dict with attributes."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


@pytest.mark.parametrize(
    "give",
    [
        lambda logits: logits,
        lambda logits: (logits, None),
        lambda logits: (None, logits),
        lambda logits: {"loss": None, "logits": logits},
        lambda logits: Output(logits),
        lambda logits: Dictionary(logits=logits, past_key_values=None),
    ],
    ids=["tensor", "tuple", "loss first", "dict", "dataclass", "ModelOutput"],
)
def test_logits_are_found_in_what_a_module_returns(give: Any) -> None:
    found = probe(LogitsOnly(Limited(give=give)), 8, None)
    assert (found.vocab_size, found.last_only, found.position_limit) == (V, False, None)


@pytest.mark.parametrize("give", [lambda x: x[:, -1:], lambda x: x[:, -1]], ids=["(B, 1, V)", "(B, V)"])
def test_logits_of_the_last_position_alone_are_recognised(give: Any) -> None:
    assert probe(LogitsOnly(Limited(give=give)), 8, None).last_only


@pytest.mark.parametrize("named", [None, 3, 48, 100])
@pytest.mark.parametrize("longest", [2, 3, 5, 48, 63])
def test_the_longest_sequence_is_found_whatever_is_named(longest: int, named: int | None) -> None:
    assert probe(LogitsOnly(Limited(longest)), named, None).position_limit in (
        (longest,) if named is None or longest < 2 * named else (longest, None)
    )


def test_a_named_context_that_is_the_limit_takes_three_runs_repeating_four_and_causality_three() -> None:
    module = Limited(48)
    probe(LogitsOnly(module), 48, None)
    assert module.seen == [2, 48, 49, *[11] * 4, 11, 11, 5]


def test_no_limit_is_found_where_there_is_none() -> None:
    module = Limited()
    assert probe(LogitsOnly(module), None, None).position_limit is None
    assert max(module.seen) == LONGEST_PROBE


def test_a_frozen_length_is_the_only_one_that_is_run() -> None:
    module = Limited()
    assert probe(LogitsOnly(module), 48, 16, batch=3).position_limit == 16
    assert set(module.seen) == {16}


def test_a_frozen_length_beyond_the_table_is_left_for_the_options_to_tell() -> None:
    assert probe(LogitsOnly(Limited(10)), None, 16).position_limit == 10


class BakedIn(nn.Module):
    """Adds a table of all positions, without cutting it to the length of its ids."""

    block_size = 48

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(V, V)
        self.register_buffer("pe", torch.zeros(48, V))

    def forward(self, idx: Tensor) -> Tensor:
        out: Tensor = self.table(idx) + self.pe
        return out


def test_a_length_that_is_built_in_is_told() -> None:
    with pytest.raises(ExportError) as told:
        probe(LogitsOnly(BakedIn()), 48, None)
    assert "computes 48 tokens at once and not 2 (RuntimeError: The size of tensor" in str(told.value)
    assert "cut what it adds to the length of its ids, or freeze the length with --seq-len" in str(told.value)


def test_a_length_that_is_built_in_can_be_frozen() -> None:
    assert probe(LogitsOnly(BakedIn()), 48, 48).vocab_size == V


class Needy(nn.Module):
    def forward(self, idx: Tensor, targets: Tensor) -> Tensor:
        return targets


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            Needy(),
            r"cannot compute ids .* missing 1 required positional argument: 'targets'; its forward must",
        ),
        (
            nn.Linear(3, 3),
            r"cannot compute ids of the shape \(1, 2\): RuntimeError: .*; its forward must take",
        ),
        (Limited(give=lambda x: None), "returned a NoneType without logits"),
        (Limited(give=lambda x: x.transpose(1, 2)), r"logits of the shape \(1, 7, 2\) from ids of \(1, 2\)"),
        (Limited(give=lambda x: x.flatten(0, 1)), r"logits of the shape \(2, 1, 7\) from ids of \(1, 2\)"),
        (Limited(give=lambda x: x[None]), r"logits of the shape"),
    ],
)
def test_what_is_no_language_model_is_told(module: nn.Module, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        probe(LogitsOnly(module), None, None)


@pytest.mark.parametrize("name", ["block_size", "n_positions", "max_seq_len", "context_length"])
@pytest.mark.parametrize("place", ["itself", "config", "dict"])
def test_the_context_that_a_module_names_is_found(name: str, place: str) -> None:
    module = nn.Linear(2, 2)
    if place == "itself":
        setattr(module, name, 48)
    else:
        holder: Any = {name: 48} if place == "dict" else type("Config", (), {name: 48})()
        module.config = holder
    assert named_context(module) == 48


@pytest.mark.parametrize("value", [0, 1, -3, 4.0, True, "48", None])
def test_what_can_be_no_context_is_not_taken_for_one(value: Any) -> None:
    module = nn.Linear(2, 2)
    module.block_size = value
    assert named_context(module) is None


def _summed(logits: Tensor) -> Tensor:
    return logits + logits.mean(1, keepdim=True)


def _from_behind(logits: Tensor) -> Tensor:
    return logits.flip(1).cumsum(1).flip(1)


def _by_length(logits: Tensor) -> Tensor:
    return logits * logits.shape[1]


@pytest.mark.parametrize("frozen", [None, 2, 3, 8])
@pytest.mark.parametrize("vocab", [2, 7])
@pytest.mark.parametrize("give", [_summed, _from_behind])
def test_what_looks_ahead_is_not_causal(give: Any, vocab: int, frozen: int | None) -> None:
    module = Limited(give=give)
    module.table = nn.Embedding(vocab, vocab)
    assert not probe(LogitsOnly(module), None, frozen).causal


@pytest.mark.parametrize("frozen", [None, 1, 2, 8])
@pytest.mark.parametrize("longest", [2, 3, None])
@pytest.mark.parametrize("vocab", [1, 2, 7])
def test_what_looks_back_is_causal(vocab: int, longest: int | None, frozen: int | None) -> None:
    module = Limited(None if frozen else longest, give=lambda logits: logits.cumsum(1))
    module.table = nn.Embedding(vocab, vocab)
    assert probe(LogitsOnly(module), None, frozen).causal


def test_what_changes_with_the_length_is_not_causal() -> None:
    assert not probe(LogitsOnly(Limited(give=_by_length)), None, None).causal


def test_the_last_position_alone_takes_no_padding() -> None:
    assert not probe(LogitsOnly(Limited(give=lambda logits: logits[:, -1])), None, None).causal


@pytest.mark.parametrize(
    ("give", "dtype"),
    [
        (lambda logits: logits.argmax(-1), "int64"),
        (lambda logits: logits.half(), "float16"),
        (lambda logits: logits.double(), "float64"),
        (lambda logits: logits.to(torch.complex64), "complex64"),
    ],
)
def test_logits_of_another_dtype_are_told(give: Any, dtype: str) -> None:
    with pytest.raises(ExportError) as told:
        probe(LogitsOnly(Limited(give=give)), None, None)
    assert str(told.value) == (
        f"the module made logits of {dtype}; return what its head computes, in float32."
    )


def test_rows_of_the_vocabulary_without_numbers_are_found() -> None:
    def give(rows: list[int]) -> Any:
        return lambda logits: logits.index_fill(-1, torch.tensor(rows), float("-inf"))

    assert probe(LogitsOnly(Limited(give=give([4, 5, 6]))), None, None).faults == "3 rows from 4 to 6 of 7"
    assert probe(LogitsOnly(Limited(give=give([4]))), None, None).faults == "row 4 of 7"
    assert probe(LogitsOnly(Limited()), None, None).faults is None


def test_one_token_at_a_time_can_be_frozen() -> None:
    with pytest.raises(ExportError, match=r"one token at once and not 2 .*; freeze the length"):
        probe(LogitsOnly(Limited(1)), None, None)
    assert probe(LogitsOnly(Limited(1)), None, 1).position_limit == 1
