"""CTranslate2, in whole calls: its iterator of tokens runs on in the background after one stops reading it.

So the time of a step is the difference of two calls, for many tokens and for one, over the tokens between.
``prepare`` fills CTranslate2's own specification of a decoder from the weights, without torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from _gpt2_folder import Gpt2Folder
from _peer import main, size_of
from ctranslate2.specs import Activation, TransformerDecoderModelSpec
from ctranslate2.specs.common_spec import LayerNormSpec, LinearSpec

ACTIVATIONS = {"gelu_new": Activation.GELUTanh, "gelu": Activation.GELU, "relu": Activation.RELU}


def _norm(spec: LayerNormSpec, folder: Gpt2Folder, name: str) -> None:
    spec.gamma, spec.beta = folder.weight(f"{name}.weight"), folder.weight(f"{name}.bias")


def _linear(spec: LinearSpec, folder: Gpt2Folder, name: str) -> None:
    spec.weight, spec.bias = folder.linear(name), folder.weight(f"{name}.bias")


def _filled(folder: Gpt2Folder) -> TransformerDecoderModelSpec:
    config = folder.config
    spec = TransformerDecoderModelSpec.from_config(
        folder.layers,
        config["n_head"],
        pre_norm=True,
        activation=ACTIVATIONS[config["activation_function"]],
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = decoder.projection.weight = folder.weight("wte.weight")
    decoder.position_encodings.encodings = folder.weight("wpe.weight")
    _norm(decoder.layer_norm, folder, "ln_f")
    for index, layer in enumerate(decoder.layer):
        _norm(layer.self_attention.layer_norm, folder, f"h.{index}.ln_1")
        _linear(layer.self_attention.linear[0], folder, f"h.{index}.attn.c_attn")
        _linear(layer.self_attention.linear[1], folder, f"h.{index}.attn.c_proj")
        _norm(layer.ffn.layer_norm, folder, f"h.{index}.ln_2")
        _linear(layer.ffn.linear_0, folder, f"h.{index}.mlp.c_fc")
        _linear(layer.ffn.linear_1, folder, f"h.{index}.mlp.c_proj")
    names = [str(index) for index in range(config["vocab_size"])]
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = names[0]
    spec.config.layer_norm_epsilon = config["layer_norm_epsilon"]
    spec.register_vocabulary(names)
    return spec


def prepare(source: Path, made: Path, form: str) -> None:
    """Write a model of CTranslate2; ``form`` is "float32" or "int8"."""
    spec = _filled(Gpt2Folder(source))
    spec.validate()
    spec.optimize(quantization=None if form == "float32" else form)
    made.mkdir()
    spec.save(str(made))


class CTranslate2:
    """See gpt_onnx.runtime.bench.contender.WholeContender."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._path, self._threads = Path(order["source"]), order["threads"]
        form = order["options"]["form"]
        self._generator = ctranslate2.Generator(
            str(self._path), device="cpu", compute_type=form, inter_threads=1, intra_threads=self._threads
        )
        self._form = self._generator.compute_type

    @property
    def facts(self) -> Mapping[str, Any]:
        """What it is."""
        return {
            "device": "cpu",
            "threads": self._threads,
            "file_bytes": size_of(self._path),
            "versions": {"ctranslate2": metadata.version("ctranslate2"), "numpy": np.__version__},
            "details": {"precision": self._form},
        }

    def generate(self, rows: Sequence[Sequence[int]], new_tokens: int) -> list[list[int]]:
        """Generate exactly so many tokens, whatever they are."""
        results = self._generator.generate_batch(
            [[str(token) for token in row] for row in rows],
            beam_size=1,
            sampling_topk=1,
            min_length=new_tokens,
            max_length=new_tokens,
            end_token=[],
            include_prompt_in_result=False,
        )
        return [result.sequences_ids[0] for result in results]


if __name__ == "__main__":
    main(CTranslate2, prepare)
