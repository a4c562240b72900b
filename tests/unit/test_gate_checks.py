"""The gate's checks against an engine made of eager PyTorch: right, and wrong in one way at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from gpt_onnx.bundle import GraphInfo, Manifest, ModelInfo
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import InputError
from gpt_onnx.export.gate.cases import Facts
from gpt_onnx.export.gate.gate import CHECKS, look_at_all, report_of, setting_of
from gpt_onnx.export.gate.ours import GptReference
from gpt_onnx.export.gate.report import GateReport
from gpt_onnx.model import GPT
from gpt_onnx.runtime import Generation

Array = np.ndarray[Any, Any]
CONFIG = GPTConfig(vocab_size=31, context_length=24, n_embd=16, n_layer=2, n_head=2)


class EagerDecoder:
    """The surface of the runtime's Decoder; every append computes the whole rows again."""

    def __init__(self, gpt: GPT, batch_size: int) -> None:
        self.gpt = gpt
        self.rows: list[list[int]] = [[] for _ in range(batch_size)]

    def compute(self, row: Sequence[int]) -> tuple[Array, list[tuple[Array, Array]]]:
        with torch.no_grad():
            logits, presents = self.gpt(torch.tensor([list(row)], dtype=torch.int64))
        return logits[0].numpy(), [(key[0].numpy(), value[0].numpy()) for key, value in presents]

    def append(self, rows: Sequence[Sequence[int]], keep: str = "last") -> list[Array]:
        out = []
        for row, new in zip(self.rows, rows, strict=True):
            row += new
            logits = self.compute(row)[0][len(row) - len(new) :] if new else np.zeros((0, 31), np.float32)
            out.append(logits if keep == "all" or not new else logits[-1])
        return out

    def rewind(self, lengths: Sequence[int]) -> None:
        self.rows = [row[:length] for row, length in zip(self.rows, lengths, strict=True)]

    def keep_rows(self, indices: Sequence[int]) -> None:
        self.rows = [self.rows[index] for index in indices]

    def keys_and_values(self) -> list[tuple[Array, Array]]:
        longest, computed = max(map(len, self.rows)), [self.compute(row)[1] for row in self.rows]

        def stacked(layer: int, part: int) -> Array:
            rows = [row[layer][part] for row in computed]
            return np.stack([np.pad(row, ((0, 0), (0, longest - row.shape[1]), (0, 0))) for row in rows])

        return [(stacked(layer, 0), stacked(layer, 1)) for layer in range(CONFIG.n_layer)]


class EagerEngine:
    """The surface of OnnxGPT, computed by eager PyTorch in float32."""

    decoder_class: type[EagerDecoder] = EagerDecoder

    def __init__(self, gpt: GPT) -> None:
        self.gpt, self.limit = gpt, gpt.config.position_limit

    def decoder(self, batch_size: int = 1, capacity: int | None = None) -> EagerDecoder:
        return self.decoder_class(self.gpt, batch_size)

    def logits(self, input_ids: Any, attention_mask: Any = None) -> Array:
        ids = np.array(input_ids)
        mask = np.ones_like(ids) if attention_mask is None else attention_mask
        if self.limit is not None and mask.sum(axis=1).max() > self.limit:
            raise InputError("too long")
        out = np.zeros((*ids.shape, 31), np.float32)
        for index, (row, real) in enumerate(zip(ids, mask, strict=True)):
            if real.any():
                out[index, real == 1] = self.decoder(1).append([row[real == 1].tolist()], "all")[0]
        return out

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        sampling: Any,
        *,
        ignore_eos: bool = False,
    ) -> list[Generation]:
        tokens = [self.continued(list(prompt), max_new_tokens) for prompt in prompts]
        return [Generation(ids=ids, finish_reason="length") for ids in tokens]

    def continued(self, ids: list[int], count: int) -> tuple[int, ...]:
        start, decoder = len(ids), self.decoder(1)
        for _ in range(count):
            ids = [*ids, int(decoder.append([ids[len(decoder.rows[0]) :]])[0].argmax())]
        return tuple(ids[start:])


def make(position: str = "sinusoidal") -> GPT:
    torch.manual_seed(0)
    gpt = GPT(CONFIG.replace(position=position)).eval()
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.add_(0.25 * torch.randn_like(parameter))
    return gpt


def manifest_for(gpt: GPT) -> Manifest:
    config = gpt.config
    return Manifest(
        name="gpt",
        target="portable",
        precision="fp32",
        graph=GraphInfo(
            layout="dynamic",
            graphs={"model": "onnx/model.onnx"},
            data=None,
            attention="decomposed",
            opset=21,
            ir_version=10,
        ),
        model=ModelInfo(
            vocab_size=31,
            context_length=config.context_length,
            position=config.position,
            position_limit=config.position_limit,
            n_layer=2,
            n_kv_head=2,
            head_size=8,
            cache_head_size=8,
            parameters=gpt.parameter_count(),
        ),
        checked=False,
        compared_with_original=False,
        options={},
        versions={"torch": "2"},
        source_sha256="0" * 64,
    )


def gate(engine: EagerEngine, gpt: GPT, level: str = "quick") -> GateReport:
    manifest = manifest_for(gpt)
    facts = Facts.of(manifest, causal=True)
    setting = setting_of(engine, facts, GptReference(gpt), level, [[4, 5, 6, 7, 8, 9, 10]])
    cases = [case for check in CHECKS for case in check(setting)]
    return report_of(setting, manifest, look_at_all(cases, None), level=level, provider="cpu")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny matrices gain nothing from threads, and lose much where other programs run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def gpt() -> GPT:
    return make()


@pytest.mark.parametrize("position", ["sinusoidal", "learned"])
def test_a_right_engine_passes_every_group(position: str) -> None:
    gpt = make(position)
    report = gate(EagerEngine(gpt), gpt)
    assert report.passed, report.summary()
    assert [row.group for row in report.rows] == ["lengths", "ids", "padding", "cache", "greedy"]
    assert report.total.worst is not None
    assert report.total.worst <= 2


def test_standard_looks_at_all_that_it_promises(gpt: GPT) -> None:
    names = {(o.group, o.name) for o in gate(EagerEngine(gpt), gpt, "standard").outcomes}
    for batch in (1, 3):
        for length in (1, 2, 3, 7, 16, 24, 33, 48, 64, 129):
            tokens = "1 token" if length == 1 else f"{length} tokens"
            assert ("lengths", f"{tokens}, batch {batch}") in names
        for chunk in (1, 2, 3, 7, 16):
            assert ("cache", f"chunks of {chunk}, batch {batch}") in names
        for side in ("left", "right"):
            assert ("padding", f"padded on the {side}, batch {batch}") in names
        assert ("greedy", f"64 tokens, batch {batch}") in names
    assert ("ids", "text ids, 129 tokens") in names


def test_learned_positions_must_refuse_one_token_more() -> None:
    gpt = make("learned")
    engine = EagerEngine(gpt)
    assert any(o.name == "25 tokens are refused" for o in gate(engine, gpt).outcomes)
    engine.limit = None  # the module itself still raises, as an exception of another kind would

    class Wrapping(EagerEngine):
        def logits(self, input_ids: Any, attention_mask: Any = None) -> Array:
            return super().logits(np.array(input_ids)[:, :24], attention_mask)

    report = gate(Wrapping(gpt), gpt)
    assert [o.name for o in report.outcomes if not o.passed] == ["25 tokens are refused"]
    assert "an InputError was expected" in report.summary()


class ForgetsToRewind(EagerDecoder):
    def rewind(self, lengths: Sequence[int]) -> None:
        self.rows = [row[: length + 1] for row, length in zip(self.rows, lengths, strict=True)]


class KeepsOtherRows(EagerDecoder):
    def keep_rows(self, indices: Sequence[int]) -> None:
        super().keep_rows(sorted(indices))


class SwapsKeysAndValues(EagerDecoder):
    def keys_and_values(self) -> list[tuple[Array, Array]]:
        (first, second), *others = super().keys_and_values()
        return [(second, first), *others]


class ShiftsSingleSteps(EagerDecoder):
    def append(self, rows: Sequence[Sequence[int]], keep: str = "last") -> list[Array]:
        out = super().append(rows, keep)
        single = len(self.rows[0]) > 1 and len(rows[0]) == 1
        return [part * np.float32(1 + 1e-4) for part in out] if single else out


class RoundsLast(EagerDecoder):
    def append(self, rows: Sequence[Sequence[int]], keep: str = "last") -> list[Array]:
        out = super().append(rows, keep)
        return [part.astype(np.float16).astype(np.float32) for part in out] if keep == "last" else out


DECODER_FAULTS: dict[type[EagerDecoder], str] = {
    ForgetsToRewind: "rewound",
    KeepsOtherRows: "rows dropped",
    SwapsKeysAndValues: "chunks of 1",
    ShiftsSingleSteps: "chunks of 1",
    RoundsLast: "last logits alone",
}


@pytest.mark.parametrize("fault", DECODER_FAULTS)
def test_a_faulty_decoder_is_found_out(gpt: GPT, fault: type[EagerDecoder]) -> None:
    class Faulty(EagerEngine):
        decoder_class = fault

    failed = [o.name for o in gate(Faulty(gpt), gpt).outcomes if not o.passed and o.group == "cache"]
    assert any(name.startswith(DECODER_FAULTS[fault]) for name in failed), failed


class SeesPadding(EagerEngine):
    """One ulp of a real logit depends on what stands on the padding."""

    def logits(self, input_ids: Any, attention_mask: Any = None) -> Array:
        out = super().logits(input_ids, attention_mask)
        if attention_mask is not None:
            noise = np.where(attention_mask == 0, np.array(input_ids), 0).sum()
            scaled = out * np.float32(1 + 2**-23 * (noise % 2))
            return np.asarray(scaled, np.float32)
        return out


class InfinitePadding(EagerEngine):
    def logits(self, input_ids: Any, attention_mask: Any = None) -> Array:
        out = super().logits(input_ids, attention_mask)
        if attention_mask is not None:
            out[~attention_mask.any(axis=1)] = np.nan
        return out


class IgnoresTheMask(EagerEngine):
    def logits(self, input_ids: Any, attention_mask: Any = None) -> Array:
        return super().logits(input_ids)


ENGINE_FAULTS = {
    SeesPadding: "change the logits of real tokens",
    InfinitePadding: "nothing but padding is not finite",
    IgnoresTheMask: None,
}


@pytest.mark.parametrize("fault", ENGINE_FAULTS)
def test_an_engine_that_pads_wrongly_is_found_out(gpt: GPT, fault: type[EagerEngine]) -> None:
    failed = [o for o in gate(fault(gpt), gpt).outcomes if not o.passed]
    assert {o.group for o in failed} == {"padding"}
    message = ENGINE_FAULTS[fault]
    assert message is None or any(message in (o.finding.fault or "") for o in failed)


def test_tokens_that_float64_does_not_prefer_are_found_out(gpt: GPT) -> None:
    class Careless(EagerEngine):
        def continued(self, ids: list[int], count: int) -> tuple[int, ...]:
            found = list(super().continued(ids, count))
            found[-1] = (found[-1] + 1) % 31
            return tuple(found)

    failed = [o for o in gate(Careless(gpt), gpt).outcomes if not o.passed]
    assert {o.group for o in failed} == {"greedy"}
    assert "token 16 is" in (failed[0].finding.fault or "")


def test_a_generation_that_ends_early_is_found_out(gpt: GPT) -> None:
    class Brief(EagerEngine):
        def continued(self, ids: list[int], count: int) -> tuple[int, ...]:
            return super().continued(ids, count - 1)

    assert "15 tokens were generated; 16 were expected" in gate(Brief(gpt), gpt).summary()


def test_an_unknown_level_is_refused(gpt: GPT) -> None:
    with pytest.raises(InputError, match="known are quick, standard, deep"):
        gate(EagerEngine(gpt), gpt, "thorough")
