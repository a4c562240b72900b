"""onnxruntime-genai: its tokenizer, its loop, its cache; it pads a batch on the right with the pad token."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime_genai as og
from _order import Order, answer


def _array(batch: Any) -> Any:
    """Ids of a batch, (B, S), which newer versions give as a tensor of their own."""
    return batch.as_numpy() if hasattr(batch, "as_numpy") else batch


def _generator(model: Any, order: Order, width: int) -> Any:
    params = og.GeneratorParams(model)
    params.set_search_options(
        do_sample=False, max_length=width + order.new_tokens, batch_size=len(order.prompts)
    )
    return og.Generator(model, params)


def _by_ids(model: Any, order: Order) -> dict[str, object]:
    """Greedy ids of one prompt, for a bundle without a tokenizer."""
    [prompt] = order.prompts
    generator = _generator(model, order, len(prompt))
    generator.append_tokens(np.array(prompt, np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    ids = list(map(int, generator.get_sequence(0)))[len(prompt) :]
    return {"ids": [ids]}


def generate(order: Order) -> dict[str, object]:
    """Greedy ids and texts of each prompt, from text."""
    model = og.Model(str(order.bundle))
    if not order.texts:
        return _by_ids(model, order)
    tokenizer = og.Tokenizer(model)
    encoded = [tokenizer.encode(text) for text in order.texts]
    assert [list(map(int, row)) for row in encoded] == order.prompts, "its tokenizer gives other ids"
    one = len(encoded) == 1
    ids = np.asarray(encoded) if one else _array(tokenizer.encode_batch(list(order.texts)))
    generator = _generator(model, order, ids.shape[1])
    generator.append_tokens((ids[0] if one else ids).astype(np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    rows = [list(map(int, generator.get_sequence(row)))[ids.shape[1] :] for row in range(len(ids))]
    texts = [tokenizer.decode(np.asarray(row, np.int32)) for row in rows]
    return {"ids": rows, "texts": texts}


if __name__ == "__main__":
    answer(generate)
