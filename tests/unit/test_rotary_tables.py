"""Stored rotary tables: known by name, and held against the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpt_onnx.checkpoint.rotary_tables import check_rotary_tables, is_rotary_table
from gpt_onnx.checkpoint.spellings import spelled
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import ConfigError

CONFIG = GPTConfig(
    vocab_size=5, context_length=9, n_embd=32, n_layer=1, n_head=2, position="rotary", rope_theta=5000.0
)
INVERSE = 5000.0 ** (-np.arange(0, 16, 2) / 16)
ANGLES = np.arange(9)[:, None] * INVERSE

Array = NDArray[Any]


@dataclass(frozen=True)
class Arrays:
    """A store of arrays in memory."""

    arrays: Mapping[str, Array]
    path: Path = Path("gpt.pt")
    files: tuple[Path, ...] = field(default=())

    @property
    def tensors(self) -> Mapping[str, Any]:
        return self.arrays

    def read(self, name: str) -> Array:
        return self.arrays[name]


FORMS: Mapping[str, tuple[str, Callable[[Array], Array]]] = {
    "frequencies": ("rope.inv_freq", lambda angles: angles[1]),
    "sines": ("blocks.0.attn.freqs_sin", np.sin),
    "sines twice over": ("rotary.sin_cached", lambda angles: np.sin(np.concatenate((angles, angles), 1))),
    "sines side by side": ("sin", lambda angles: np.sin(np.repeat(angles, 2, 1))[None, None]),
}


@pytest.mark.parametrize("form", FORMS)
def test_tables_of_the_answers_are_accepted_and_others_are_refused(form: str) -> None:
    name, make = FORMS[form]
    check_rotary_tables(Arrays({name: make(ANGLES).astype(np.float32)}), CONFIG)
    for other in (ANGLES / 2, ANGLES**1.001):
        with pytest.raises(ConfigError, match="has other rotary frequencies than 8 of theta = 5000"):
            check_rotary_tables(Arrays({name: make(other).astype(np.float32)}), CONFIG)


@pytest.mark.parametrize("odd", [0, 1])
def test_the_table_of_every_layer_is_looked_at(odd: int) -> None:
    tables = {f"blocks.{layer}.rope.inv_freq": INVERSE / (2 if layer == odd else 1) for layer in range(2)}
    with pytest.raises(ConfigError, match=rf"blocks\.{odd}\.rope\.inv_freq has other rotary frequencies"):
        check_rotary_tables(Arrays(tables), CONFIG)


@pytest.mark.parametrize(
    "name", ["inv_freq", "model.rope.cos", "h.0.attn.cos_cached", "freqsSin", "sin_table"]
)
def test_tables_are_no_weights(name: str) -> None:
    assert is_rotary_table(name)
    found = spelled([name])
    assert not found.unknown
    assert found.naming.ignores(name)


@pytest.mark.parametrize("name", ["h.0.attn.cosine.weight", "since", "cos.weight", "sinusoidal"])
def test_other_names_are_not_tables(name: str) -> None:
    assert not is_rotary_table(name)
