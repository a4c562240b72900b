"""Stored tables of rotary positions, held against the configuration that somebody answered.

A program that keeps its frequencies, or the sines of its angles, in a buffer thereby says whether they are
scaled, which nobody was asked. Such tables are no weights: the graph makes its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.checkpoint.store import Store
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import ConfigError
from gpt_onnx.rope import frequencies

_ENDS = "(?:_?(?:cached?|table))?"
FREQUENCIES = re.compile(r"(?:.*\.)?inv_?freqs?_?", re.IGNORECASE)
SINES = re.compile(rf"(?:.*\.)?(?:freqs_?|rope_?)?sin{_ENDS}_?", re.IGNORECASE)
COSINES = re.compile(rf"(?:.*\.)?(?:(?:freqs_?|rope_?)?cos{_ENDS}|freqs_?cis)_?", re.IGNORECASE)
RELATIVE, ABSOLUTE = 1e-4, 1e-6  # what float32 costs the lowest frequency that there is

Array = NDArray[Any]


def is_rotary_table(name: str) -> bool:
    """Whether a stored name is such a table's."""
    return any(words.fullmatch(name) for words in (FREQUENCIES, SINES, COSINES))


def _readings(name: str, table: Array) -> Iterator[Array]:
    """Yield the frequencies that a table may hold: each once, or twice in one of two orders."""
    if FREQUENCIES.fullmatch(name):
        yield table.reshape(-1)
    elif SINES.fullmatch(name) and table.ndim >= 2 and table.shape[-2] > 1:
        row = table.reshape(-1, *table.shape[-2:])[0, 1]  # of position 1, whose angles are the frequencies
        angles = np.arcsin(np.clip(row, -1.0, 1.0))
        yield from (angles, angles[: len(angles) // 2], angles[::2])


def check_rotary_tables(store: Store, config: GPTConfig) -> None:
    """See that stored frequencies are those of the configuration, in every layer that has a table.

    Raises:
        ConfigError: naming a table that says something else.
    """
    if config.position != "rotary":
        return
    expected = np.array(frequencies(config.rope_size, config.rope_theta, config.rope_scaling))
    for name in filter(is_rotary_table, store.tensors):
        found = list(_readings(name, store.read(name)))
        if found and not any(_equal(reading, expected) for reading in found):
            raise ConfigError(
                f"{store.path}: {name} has other rotary frequencies than {expected.size} of theta = "
                f"{config.rope_theta:g}; correct rope_theta, or add rope_size or rope_scaling to the answers."
            )


def _equal(found: Array, expected: Array) -> bool:
    return found.shape == expected.shape and np.allclose(found, expected, rtol=RELATIVE, atol=ABSOLUTE)
