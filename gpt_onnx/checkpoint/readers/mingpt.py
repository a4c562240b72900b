"""minGPT's ``model.pt``: a state dict alone, of its older layout or of its newer, which nanoGPT's has too.

The code tells the order of the norms, their epsilon and the scale of attention. The number of heads and the
activation are asked for, unless minGPT's config.json stands beside the file, as no tensor says them: minGPT
with ``tok_emb`` had nn.GELU(), with ``transformer.wte`` its NewGELU(), and nanoGPT changed from the one to
the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gpt_onnx.checkpoint.archive import LazyTensor, state_dict_of
from gpt_onnx.checkpoint.assembly import Reading, assembled, question_sheet, reading_of
from gpt_onnx.checkpoint.checkpoint import Checkpoint
from gpt_onnx.checkpoint.names import Name, Naming
from gpt_onnx.checkpoint.padding import without_padding
from gpt_onnx.checkpoint.readers import nanogpt
from gpt_onnx.checkpoint.readers._reader import Reader, ReadOptions
from gpt_onnx.checkpoint.readers.mingpt_config import told_beside
from gpt_onnx.checkpoint.state_dicts import (
    check_floats,
    check_masks,
    names_in,
    root_of,
    without_prefixes,
)
from gpt_onnx.checkpoint.torch_store import TorchStore
from gpt_onnx.errors import InputError

KIND = "state dict of minGPT or nanoGPT"
OLDER_PARTS: Mapping[str, str] = {
    "ln1": "ln_1",
    "attn.query": "attn.q",
    "attn.key": "attn.k",
    "attn.value": "attn.v",
    "attn.proj": "attn.c_proj",
    "ln2": "ln_2",
    "mlp.0": "mlp.c_fc",
    "mlp.2": "mlp.c_proj",
}
OLDER = Naming(
    (
        Name("tok_emb.weight", "wte.weight"),
        Name("pos_emb", "wpe.weight"),
        *(
            Name(f"blocks.{{layer}}.{theirs}.{kind}", f"h.{{layer}}.{ours}.{kind}")
            for theirs, ours in OLDER_PARTS.items()
            for kind in ("weight", "bias")
        ),
        Name("ln_f.weight", "ln_f.weight"),
        Name("ln_f.bias", "ln_f.bias"),
        Name("head.weight", "lm_head.weight"),
    ),
    ignored=("blocks.{layer}.attn.mask",),
)
"""Up to July 2022."""
LAYOUTS: Mapping[str, Naming] = {
    "blocks.0.attn.query.weight": OLDER,
    "transformer.h.0.attn.c_attn.weight": nanogpt.NAMING,
}
"""The layouts, by a tensor that one of them has."""
SIGNS: Mapping[str, frozenset[str]] = {
    "blocks.0.attn.query.weight": frozenset({"tok_emb.weight", "pos_emb", "blocks.0.mlp.2.weight"}),
    "transformer.h.0.attn.c_attn.weight": frozenset(
        {"transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.mlp.c_fc.weight"}
    ),
}
"""What stands beside it."""
CODE = {"norm_order": "pre", "norm_eps": 1e-5, "attention_scale": "head_size", "embedding_scale": 1.0}
"""What the programs compute in every version."""
ACTIVATIONS = ("gelu", "gelu_tanh", "relu")
BESIDE = "Heads and activation are those of minGPT's config.json beside the file."
HISTORY = """\
# nn.GELU() is "gelu": minGPT with tok_emb (up to July 2022), nanoGPT since 14 June 2023.
# NewGELU() and new_gelu() are "gelu_tanh": minGPT with transformer.wte, nanoGPT before that day.
"""


def _sign(names: frozenset[str]) -> str | None:
    return next((sign for sign, beside in SIGNS.items() if names >= {sign, *beside}), None)


def _is_linear(tensors: Mapping[str, LazyTensor], sign: str) -> bool:
    """Whether projections are stored (out, in); the Conv1D of Hugging Face's GPT-2 stores (in, out)."""
    shape = tensors[sign].shape
    return len(shape) == 2 and (sign in OLDER_PARTS or shape[0] >= shape[1])


def recognises(path: Path) -> bool:
    """Whether it is a state dict of one of the layouts."""
    root = root_of(path)
    sign = _sign(names_in(root))
    if sign is None or not isinstance(root, dict):
        return False
    tensors = without_prefixes({name: value for name, value in root.items() if isinstance(value, LazyTensor)})
    return _is_linear(tensors, sign)


def _understood(path: Path, options: ReadOptions) -> Reading:
    if options.names is not None:
        raise InputError(f"a {KIND} has names of its own; leave --names {options.names} away.")
    tensors = without_prefixes(state_dict_of(root_of(path), path))
    sign = _sign(frozenset(tensors))
    assert sign is not None
    naming = LAYOUTS[sign]
    check_floats(path, tensors, naming)
    check_masks(path, tensors, filter(naming.ignores, tensors))
    reading = reading_of(TorchStore(path, tensors), naming)
    beside = {} if naming is OLDER else told_beside(path, reading.facts.values)
    notes = (*reading.notes, BESIDE) if beside else reading.notes
    facts = reading.facts.told({**CODE, **beside}, activation=ACTIVATIONS)
    return replace(reading, facts=facts, notes=notes)


def read(path: Path, options: ReadOptions) -> Checkpoint:
    """See Reader."""
    return without_padding(assembled(_understood(path, options), options, path=path, kind=KIND))


def template(path: Path, options: ReadOptions) -> str:
    """See Reader."""
    return HISTORY + question_sheet(_understood(path, options), options, path=path)


READER = Reader(
    kind=KIND,
    summary="minGPT's model.pt",
    recognises=recognises,
    read=read,
    template=template,
)
