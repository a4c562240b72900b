"""The loop over two graphs of frozen lengths: a prompt padded to N slots, then a token a step. numpy only."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from _order import Order

Run = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Inputs by name to outputs by name."""


def _past(values: Mapping[str, Any]) -> dict[str, Any]:
    """The cache that a run gave, under the names by which the next one takes it."""
    return {
        name.replace("present", "past_key_values"): value
        for name, value in values.items()
        if name.startswith("present.")
    }


def frozen(order: Order, load: Callable[[str], Run]) -> dict[str, object]:
    """Greedy ids of one prompt; ``load`` opens a graph by its path."""
    [prompt] = order.prompts
    graph = json.loads((order.bundle / "manifest.json").read_text(encoding="utf-8"))["graph"]
    prefill, decode = (load(str(order.bundle / graph["graphs"][role])) for role in ("prefill", "decode"))
    ids, mask = np.zeros((1, graph["seq_len"]), np.int64), np.zeros((1, graph["seq_len"]), np.int64)
    ids[0, : len(prompt)], mask[0, : len(prompt)] = prompt, 1
    positions = np.arange(graph["seq_len"])[None]
    values = prefill({"input_ids": ids, "attention_mask": mask, "position_ids": positions})
    made = [int(values["logits"][0, len(prompt) - 1].argmax())]
    while len(made) < order.new_tokens:
        place = len(prompt) + len(made) - 1
        mask[0, place] = 1
        newest = {"input_ids": np.array([made[-1:]]), "position_ids": np.array([[place]])}
        values = decode({"attention_mask": mask, **newest, **_past(values)})
        made.append(int(values["logits"][0, 0].argmax()))
    return {"ids": [made]}
