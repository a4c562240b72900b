"""nanochat's ``model_<step>.pt``: recognised, and refused by what its model has that ours lacks.

Its layout may look like that of GPT-2, but its norms have no weights, so that nothing in the file would stand
against reading it as another model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from gpt_onnx.checkpoint.readers._reader import Reader, ReadOptions
from gpt_onnx.checkpoint.state_dicts import names_in, root_of
from gpt_onnx.errors import CheckpointError

KIND = "nanochat checkpoint"
SIGNS = frozenset({"transformer.wte.weight", "transformer.h.0.attn.c_q.weight", "lm_head.weight"})
NORM = re.compile(r"transformer\.(?:ln_f|norm|h\.0\.ln_1|h\.0\.norm1)\..*")
ALWAYS = (
    "queries and keys that are normalised after they are turned",
    "norms without weights, one of them after the token embedding",
    "the square of ReLU as activation",
    "logits bounded by a hyperbolic tangent",
)
"""What its program computes in every version, though no tensor says so."""
PARTS: Mapping[str, str] = {
    r"value_embeds\..*": "value embeddings",
    r".*\.attn\.ve_gate\..*": "gates on value embeddings",
    r"resid_lambdas": "factors on the residual stream of each layer",
    r"x0_lambdas": "factors on the first layer's input in each layer",
    r"smear_.*": "mixing of each token with the one before it",
    r"backout_.*": "subtraction of a middle layer's output",
}
"""What newer versions store besides."""


def recognises(path: Path) -> bool:
    """Whether it is a state dict with queries of their own, and without any norm."""
    names = names_in(root_of(path))
    return names >= SIGNS and not any(NORM.fullmatch(name) for name in names)


def read(path: Path, options: ReadOptions) -> NoReturn:
    """Refuse it.

    Raises:
        CheckpointError: always, naming what it has.
    """
    names = names_in(root_of(path))
    stored = [said for part, said in PARTS.items() if any(re.fullmatch(part, name) for name in names)]
    raise CheckpointError(
        f"{path} is a {KIND}; its model has {'; '.join((*ALWAYS, *stored))}: our GPT has none of these. "
        "Export the module itself (FILE.py:NAME)."
    )


READER = Reader(
    kind=KIND,
    summary="",
    recognises=recognises,
    read=read,
)
