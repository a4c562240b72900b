"""Each session gets the options of the table, and those that its settings ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from gpt_onnx.runtime._session import OPTIONS, GraphSession, SessionSettings, session_options
from gpt_onnx.runtime.providers import Device

CPU = Device(kind="cpu")
LEVEL = "session.qdq_matmulnbits_accuracy_level"


def options_of(**settings: Any) -> Any:
    return session_options(onnxruntime, SessionSettings(device=CPU, threads=1, **settings))


def test_every_option_of_the_table_is_set() -> None:
    options = options_of()
    for name, value in OPTIONS.items():
        is_entry = "." in name
        assert (options.get_session_config_entry(name) if is_entry else getattr(options, name)) == value


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_are_those_asked_for(threads: int) -> None:
    options = session_options(onnxruntime, SessionSettings(device=CPU, threads=threads))
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (threads, 1)


@pytest.mark.parametrize("frozen", [False, True])
def test_memory_is_planned_for_frozen_lengths_only(frozen: bool) -> None:
    assert options_of(frozen=frozen).enable_mem_pattern is frozen


@pytest.mark.parametrize("level", [0, 4])
def test_the_accuracy_level_of_a_quantised_bundle_is_asked_for(level: int) -> None:
    assert options_of(qdq_accuracy_level=level).get_session_config_entry(LEVEL) == str(level)


def test_a_bundle_that_is_not_quantised_leaves_the_accuracy_level_alone() -> None:
    with pytest.raises(RuntimeError, match=LEVEL):
        options_of().get_session_config_entry(LEVEL)


def test_an_entry_that_this_version_lacks_is_ignored(
    tiny_bundle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {**OPTIONS, "session.from_a_later_version": "1"}
    monkeypatch.setattr("gpt_onnx.runtime._session.OPTIONS", entries)
    path = tiny_bundle().path / "onnx" / "model.onnx"
    session = GraphSession(path, SessionSettings(device=CPU, threads=1), onnxruntime)
    assert session.dtype("logits") == "float32"


def test_a_profile_is_written_where_it_is_asked_for(tiny_bundle: Any, tmp_path: Path) -> None:
    settings = SessionSettings(device=CPU, threads=1, profile=tmp_path / "profile")
    session = GraphSession(tiny_bundle().path / "onnx" / "model.onnx", settings, onnxruntime)
    assert session.end_profile().parent == tmp_path
