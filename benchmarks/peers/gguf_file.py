"""A Hugging Face gpt2 folder as a GGUF file in float32, as llama.cpp's own converter would write it.

The head is the table of tokens, stored once. A second file, ``two tables``, stores it again as the head, as
llama.cpp's converter did until 2025: files of that form are what is found under the name GPT-2.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

from benchmarks.peers._gpt2_folder import Gpt2Folder

BLOCK = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
"""Parts of a block: Hugging Face's name and GGUF's."""


def _blocks(folder: Gpt2Folder) -> Iterator[tuple[str, NDArray[np.float32]]]:
    for layer in range(folder.layers):
        for theirs, name in BLOCK.items():
            part, target = f"h.{layer}.{theirs}", f"blk.{layer}.{name}"
            is_norm = theirs.startswith("ln_")
            yield f"{target}.weight", folder.weight(f"{part}.weight") if is_norm else folder.linear(part)
            yield f"{target}.bias", folder.weight(f"{part}.bias")


def _tensors(folder: Gpt2Folder, *, two_tables: bool) -> Iterator[tuple[str, NDArray[np.float32]]]:
    yield "token_embd.weight", folder.weight("wte.weight")
    yield "position_embd.weight", folder.weight("wpe.weight")
    yield from _blocks(folder)
    yield "output_norm.weight", folder.weight("ln_f.weight")
    yield "output_norm.bias", folder.weight("ln_f.bias")
    if two_tables:
        yield "output.weight", folder.weight("wte.weight")


def write_gguf(source: Path, path: Path, *, two_tables: bool = False) -> None:
    """Write the file; it has no vocabulary, as ids are all that is fed."""
    folder = Gpt2Folder(source)
    config = folder.config
    writer = GGUFWriter(path, "gpt2")
    writer.add_block_count(folder.layers)
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(config["n_inner"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(config["vocab_size"])
    for name, values in _tensors(folder, two_tables=two_tables):
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
