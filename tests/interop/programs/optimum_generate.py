"""optimum: ORTModelForCausalLM and transformers' generate; a batch is padded on the left."""

from __future__ import annotations

import torch
from _order import Order, answer
from optimum.onnxruntime import ORTModelForCausalLM
from transformers import AutoTokenizer


def generate(order: Order) -> dict[str, object]:
    """Greedy ids and texts of each prompt, from text."""
    torch.set_num_threads(1)
    model = ORTModelForCausalLM.from_pretrained(order.bundle)
    tokenizer = AutoTokenizer.from_pretrained(order.bundle, padding_side="left")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    assert tokenizer(list(order.texts))["input_ids"] == order.prompts, "its tokenizer gives other ids"
    batch = tokenizer(list(order.texts), return_tensors="pt", padding=True, return_token_type_ids=False)
    rows = model.generate(**batch, do_sample=False, max_new_tokens=order.new_tokens)
    new = rows[:, batch["input_ids"].shape[1] :]
    return {
        "ids": new.tolist(),
        "texts": tokenizer.batch_decode(new),
    }


if __name__ == "__main__":
    answer(generate)
