"""nanoGPT's ``ckpt.pt``: a dict with the state dict under ``model`` and its sizes under ``model_args``.

What the file does not say is nanoGPT's own code of today, and a file of ``--config`` may say otherwise:

    activation = "gelu_tanh"    # of before 14 June 2023, when nn.GELU() took the place of new_gelu
    vocab_size = 50304          # keep the rows that pad GPT-2's vocabulary
    tie_embeddings = false      # a program that does not tie the head to the token embedding
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_onnx.checkpoint.archive import state_dict_of
from gpt_onnx.checkpoint.checkpoint import Checkpoint
from gpt_onnx.checkpoint.names import Name, Naming
from gpt_onnx.checkpoint.naming import check_naming, recipes_of
from gpt_onnx.checkpoint.padding import without_padding
from gpt_onnx.checkpoint.questions import read_answers
from gpt_onnx.checkpoint.readers._reader import Reader, ReadOptions, find_tokenizer
from gpt_onnx.checkpoint.recipe import same_values
from gpt_onnx.checkpoint.state_dicts import check_floats, check_masks, root_of, without_prefixes
from gpt_onnx.checkpoint.torch_store import TorchStore
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError, ConfigError, InputError

KIND = "nanoGPT checkpoint"
MODEL, ARGUMENTS = "model", "model_args"
EMBEDDING, HEAD = "transformer.wte.weight", "lm_head.weight"
PARTS = ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")
NAMING = Naming(
    (
        Name(EMBEDDING, "wte.weight"),
        Name("transformer.wpe.weight", "wpe.weight"),
        *(
            Name(f"transformer.h.{{layer}}.{part}.{kind}", f"h.{{layer}}.{part}.{kind}")
            for part in PARTS
            for kind in ("weight", "bias")
        ),
        Name("transformer.ln_f.weight", "ln_f.weight"),
        Name("transformer.ln_f.bias", "ln_f.bias"),
        Name(HEAD, HEAD),
    ),
    ignored=("transformer.h.{layer}.attn.bias",),
)
"""Its names; the mask stands under the name of a bias, where PyTorch had no attention of its own."""

SIZES = {
    "n_layer": "n_layer",
    "n_head": "n_head",
    "n_embd": "n_embd",
    "block_size": "context_length",
    "vocab_size": "vocab_size",
}
"""What model_args must say, and our words for it."""
OTHER_ARGUMENTS = ("bias", "dropout")
GELU_NOTE = (
    "A nanoGPT checkpoint does not say which GELU it was trained with: taken is nn.GELU(), which nanoGPT has "
    'had since 14 June 2023; for an older one, give --config with activation = "gelu_tanh".'
)
TOKENIZER_NOTE = (
    "A nanoGPT checkpoint holds no tokenizer: name that of its training with --tokenizer, such as the "
    "meta.pkl beside its data where tokens are characters."
)
USUAL: Mapping[str, object] = {"activation": "gelu", "norm_eps": 1e-5, "tie_embeddings": True}
"""What nanoGPT's code says, unless --config says otherwise."""
OPEN = (*USUAL, "vocab_size")
"""What --config may say: the last is the number of tokens, behind which rows are padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the checkpoint says, and what the user says besides."""

    stored: GPTConfig
    """The model as it is stored, with every row of its vocabulary."""
    vocab_size: int | None
    """Rows that are kept, where the user says it."""
    said: frozenset[str]
    """What the user said."""


def recognises(path: Path) -> bool:
    """Whether it is a dict of torch.save with both keys."""
    root = root_of(path)
    return isinstance(root, dict) and isinstance(root.get(ARGUMENTS), dict) and MODEL in root


def _arguments(path: Path, arguments: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the sizes in our words, and the bias where it is said.

    Raises:
        CheckpointError: if one is missing, unknown or no plain value.
    """
    if missing := [name for name in SIZES if name not in arguments]:
        raise CheckpointError(f"{path}: {ARGUMENTS} lacks {missing[0]!r}; nanoGPT's has {', '.join(SIZES)}.")
    for name, value in arguments.items():
        if name not in (*SIZES, *OTHER_ARGUMENTS):
            raise CheckpointError(
                f"{path}: {ARGUMENTS} has {str(name)[:100]!r}, which nanoGPT's own code does not know; if "
                "the model is one of ours, save its state_dict alone and give --config and --names."
            )
        if type(value) not in (int, float, bool):
            raise CheckpointError(
                f"{path}: {ARGUMENTS} has a {type(value).__name__} as {name!r}; it is a number."
            )
    values = {ours: arguments[theirs] for theirs, ours in SIZES.items()}
    return values | {name: arguments[name] for name in OTHER_ARGUMENTS if name in arguments}


def _told(path: Path, root: Mapping[Any, Any], store: TorchStore) -> dict[str, Any]:
    """Return the configuration that the file and nanoGPT's code give."""
    values = _arguments(path, root[ARGUMENTS])
    bias = values.setdefault("bias", "transformer.h.0.attn.c_attn.bias" in store.tensors)
    return {"position": "learned", "qkv_bias": bias, **USUAL, **values}


def _answers(told: dict[str, Any], file: Path | None, path: Path) -> Answers:
    """Put the user's answers in; what the file itself says cannot be answered otherwise.

    Raises:
        ConfigError: if an answer contradicts the file, or is to no question.
    """
    stored = GPTConfig.from_dict(told, origin=f"{path}: {ARGUMENTS}")
    answers = {} if file is None else read_answers(file)
    for name, value in answers.items():
        if name in OPEN:
            continue
        if name not in stored.to_dict():
            raise ConfigError(f"{file} has the unknown key {name!r}; open are {', '.join(OPEN)}.")
        if value != (known := getattr(stored, name)):
            raise ConfigError(f"{file} says {name} = {value!r}; {path} says {known!r}: leave it away.")
    kept = stored.replace(**answers)
    if kept.vocab_size > stored.vocab_size:
        raise ConfigError(f"{file} says vocab_size = {kept.vocab_size}; {path} has {stored.vocab_size} rows.")
    return Answers(
        stored=kept.replace(vocab_size=stored.vocab_size),
        vocab_size=answers.get("vocab_size"),
        said=frozenset(answers),
    )


def _tied_head(store: TorchStore, config: GPTConfig, path: Path) -> tuple[str, ...]:
    """Return the head's name where it is the token embedding once more, for the list of what is not read.

    Raises:
        CheckpointError: if it is another matrix.
    """
    if not config.tie_embeddings or HEAD not in store.tensors or EMBEDDING not in store.tensors:
        return ()
    head, embedding = store.tensors[HEAD], store.tensors[EMBEDDING]
    if head.same_memory(embedding) or same_values(store, HEAD, EMBEDDING):
        return (HEAD,)
    raise CheckpointError(
        f"{path}: {HEAD} and {EMBEDDING} have different values, and nanoGPT ties them; if the program does "
        "not, say tie_embeddings = false in a file of --config."
    )


def _notes(answers: Answers, options: ReadOptions) -> tuple[str, ...]:
    notes = {GELU_NOTE: "activation" not in answers.said, TOKENIZER_NOTE: options.tokenizer is None}
    return tuple(note for note, applies in notes.items() if applies)


def read(path: Path, options: ReadOptions) -> Checkpoint:
    """See Reader."""
    if options.names is not None:
        raise InputError(f"a {KIND} has names of its own; leave --names {options.names} away.")
    root = root_of(path)
    assert isinstance(root, dict)
    tensors = without_prefixes(state_dict_of(root[MODEL], path, MODEL))
    store = TorchStore(path, tensors)
    answers = _answers(_told(path, root, store), options.config, path)
    check_floats(path, tensors, NAMING)
    recipes = recipes_of(NAMING, store, answers.stored)
    tied = _tied_head(store, answers.stored, path)
    check_naming(NAMING, store, answers.stored, recipes, ignored=tied, config_name=ARGUMENTS)
    check_masks(path, tensors, filter(NAMING.ignores, tensors))
    checkpoint = Checkpoint(
        path=path,
        kind=KIND,
        config=answers.stored,
        store=store,
        recipes=recipes,
        tokenizer=find_tokenizer(None, options.tokenizer, answers.stored),
        notes=_notes(answers, options),
    )
    return without_padding(checkpoint, answers.vocab_size)


READER = Reader(
    kind=KIND,
    summary="nanoGPT's ckpt.pt",
    recognises=recognises,
    read=read,
)
