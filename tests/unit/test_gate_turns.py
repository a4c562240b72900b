"""Engines of a gate take turns, so that one graph at a time is in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.export import export_bundle
from gpt_onnx.export.gate import gate
from gpt_onnx.export.gate.bare import BareGraph
from gpt_onnx.export.gate.ours import GptReference
from gpt_onnx.export.gate.turns import Turn, Turns
from gpt_onnx.runtime import OnnxGPT


def test_a_turn_is_opened_once_until_another_takes_its_place() -> None:
    told: list[str] = []

    def turn(name: str) -> Turn[str]:
        def opened() -> str:
            told.append(f"+{name}")
            return name

        return Turn(open=opened, close=lambda it: told.append(f"-{it}"))

    turns, first, second = Turns(), turn("first"), turn("second")
    assert "".join(turns.take(each)[0] for each in (first, first, second, first)) == "ffsf"
    turns.end()
    turns.end()
    assert told == ["+first", "-first", "+second", "-second", "+first", "-first"]


def test_what_cannot_be_opened_leaves_nothing_open() -> None:
    closed: list[int] = []

    def refuse() -> int:
        raise ValueError("no")

    turns = Turns()
    turns.take(Turn(open=lambda: 1, close=closed.append))
    with pytest.raises(ValueError, match="no"):
        turns.take(Turn(open=refuse))
    turns.end()
    assert closed == [1]


def test_what_ships_gives_its_memory_back_while_the_bare_graph_runs(
    tiny_bundle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, seen = tiny_bundle(), []
    engine = OnnxGPT.load(bundle.path, "cpu")

    class Watched(BareGraph):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            seen.append(engine._loaded is not None)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(gate, "BareGraph", Watched)
    report = gate.gate_engine(engine, GptReference(bundle.gpt), level="quick")
    assert report.passed
    assert seen == [False]
    assert engine._loaded is not None  # it made the greedy tokens of the evidence


def test_what_ships_gives_its_memory_back_while_exact_products_run(
    make_gpt: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bool]] = []
    load, engines = OnnxGPT.load, []

    def watched(path: Any, *arguments: Any, **options: Any) -> OnnxGPT:
        engines.append(load(path, *arguments, **options))
        seen.append((path.name.partition("-exact-")[1], engines[0]._loaded is not None))
        return engines[-1]

    monkeypatch.setattr(OnnxGPT, "load", watched)
    monkeypatch.setattr("gpt_onnx.export.quality_texts.MEASURED", 1024)
    export_bundle(make_gpt(n_embd=48), tmp_path / "bundle", precision="int8", check="quick")
    assert seen[0] == ("", True)
    assert ("-exact-", False) in seen


def test_what_ships_is_not_loaded_while_a_large_reference_computes(
    tiny_bundle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, seen = tiny_bundle(), []
    engine = OnnxGPT.load(bundle.path, "cpu")

    class Watched(GptReference):
        def compute_all(self, *arguments: Any, **options: Any) -> Any:
            seen.append(engine._loaded is not None)
            return super().compute_all(*arguments, **options)

    monkeypatch.setattr(gate, "SMALL", 0)
    monkeypatch.setattr(gate, "_with_evidence", lambda report, setting: report)
    assert gate.gate_engine(engine, Watched(bundle.gpt), level="quick").passed
    assert len(seen) > 3
    assert not any(seen)
