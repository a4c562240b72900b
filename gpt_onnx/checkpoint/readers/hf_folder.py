"""A folder that transformers' save_pretrained wrote: config.json, weights, perhaps a tokenizer.

Families are told by config.json's model_type. What a family has that our GPT lacks is refused by name.
Neither transformers nor code of the folder is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpt_onnx.checkpoint.checkpoint import Checkpoint
from gpt_onnx.checkpoint.generation import read_generation
from gpt_onnx.checkpoint.layout import CONFIG_FILE
from gpt_onnx.checkpoint.naming import check_naming, recipes_of
from gpt_onnx.checkpoint.readers._reader import Reader, ReadOptions, find_tokenizer, refuse_options
from gpt_onnx.checkpoint.readers.hf_folder_check import check_claims, named, tied_name
from gpt_onnx.checkpoint.readers.hf_folder_family import Family, check_keys, config_of, own_keys, shown
from gpt_onnx.checkpoint.readers.hf_folder_refused import REFUSED
from gpt_onnx.checkpoint.readers.hf_folder_weights import has_weights, open_weights, refuse_others
from gpt_onnx.checkpoint.readers.hf_gpt2 import GPT2
from gpt_onnx.checkpoint.readers.hf_llama import LLAMA, MISTRAL, QWEN2
from gpt_onnx.checkpoint.tokenizer_files import TokenizerFiles
from gpt_onnx.config import GPTConfig, read_json_object
from gpt_onnx.errors import CheckpointError, ConfigError, GptOnnxError

KIND = "Hugging Face folder"
ADAPTER_FILE = "adapter_config.json"
SNAPSHOTS = "snapshots"
MANIFEST_FILE = "manifest.json"
SENTENCEPIECE_FILES = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")

FAMILIES: Mapping[str, Family] = {family.model_type: family for family in (GPT2, LLAMA, MISTRAL, QWEN2)}
"""By model_type."""


def _values(folder: Path) -> dict[str, Any]:
    """Return config.json; empty where it cannot be read."""
    try:
        return read_json_object(folder / CONFIG_FILE)
    except GptOnnxError:
        return {}


def recognises(path: Path) -> bool:
    """Whether config.json names a model_type, or there are files under Hugging Face's names without one."""
    if not path.is_dir() or (path / MANIFEST_FILE).exists():
        return False
    if (path / CONFIG_FILE).exists():
        return bool({"model_type", "architectures"} & _values(path).keys())
    return (path / ADAPTER_FILE).exists() or (path / SNAPSHOTS).is_dir() or has_weights(path)


def find_family(values: Mapping[str, Any], path: Path) -> Family:
    """Return the family of a config.json.

    Raises:
        ConfigError: if it is not one of FAMILIES, naming what it has that our GPT lacks.
    """
    name = values.get("model_type")
    family = FAMILIES.get(name) if isinstance(name, str) else None
    if family is not None:
        return family
    lacking = REFUSED.get(name) if isinstance(name, str) else None
    raise ConfigError(
        f"{path} is of the model_type {shown(name)}, which cannot be read: "
        f"it {f'has {lacking}' if lacking else 'is not known'}; known are {', '.join(FAMILIES)}."
    )


def _refuse_cache(path: Path) -> None:
    """Tell where in a folder of Hugging Face's cache the model is."""
    if not (path / SNAPSHOTS).is_dir():
        return
    found = sorted(entry for entry in (path / SNAPSHOTS).iterdir() if entry.is_dir())
    raise CheckpointError(
        f"{path} is a folder of Hugging Face's cache; name the model in it: "
        f"{found[0] if found else path / SNAPSHOTS / 'REVISION'}."
    )


def _read_config(path: Path) -> dict[str, Any]:
    if (path / ADAPTER_FILE).exists():
        raise CheckpointError(
            f"{path} has an {ADAPTER_FILE}: an adapter that changes another model's weights; merge the two "
            "(merge_and_unload) and save the result."
        )
    if not (path / CONFIG_FILE).exists():
        _refuse_cache(path)
        raise CheckpointError(
            f"{path} has no {CONFIG_FILE}, which says what its weights are; fetch it as well, or name the "
            "file of weights, with --config and --names."
        )
    return read_json_object(path / CONFIG_FILE)


def _tokenizer(
    path: Path, options: ReadOptions, config: GPTConfig
) -> tuple[TokenizerFiles | None, tuple[str, ...]]:
    """Return the tokenizer, and why there is none."""
    found = find_tokenizer(path, options.tokenizer, config)
    pieces = next((name for name in SENTENCEPIECE_FILES if (path / name).exists()), None)
    if found is not None or options.tokenizer is not None or pieces is None:
        return found, ()
    return None, (
        f"{pieces} (sentencepiece) has no tokenizer.json beside it, and was left out: the bundle works by "
        "token ids; transformers writes the missing file: "
        "AutoTokenizer.from_pretrained(folder).save_pretrained(folder).",
    )


def _notes(family: Family, values: Mapping[str, Any], unknown: tuple[str, ...]) -> tuple[str, ...]:
    notes = list(family.notes(own_keys(family, values)))
    if unknown:
        notes.append(f"{CONFIG_FILE} has keys that are not known and were passed over: {', '.join(unknown)}.")
    if values.get("auto_map"):
        notes.append(
            f"{CONFIG_FILE} names code of its own (auto_map), which was not run: the model was read as "
            f"{values['model_type']}."
        )
    return tuple(notes)


def read(path: Path, options: ReadOptions) -> Checkpoint:
    """See Reader."""
    values = _read_config(path)
    refuse_options(options, KIND)
    file = path / CONFIG_FILE
    family = find_family(values, file)
    unknown = check_keys(family, values, file)
    config = config_of(family, values, file)
    store = open_weights(path)
    naming = named(family, store, config)
    refuse_others(store, naming)
    check_claims(family, values, config, naming, store, file)
    ignored = tied_name(naming, store, config, file)
    recipes = recipes_of(naming, store, config)
    check_naming(naming, store, config, recipes, ignored=ignored, config_name=str(file))
    tokenizer, missing = _tokenizer(path, options, config)
    generation, beyond = read_generation(path, values, config.vocab_size)
    return Checkpoint(
        path=path,
        kind=f"{KIND} ({family.model_type})",
        config=config,
        store=store,
        recipes=recipes,
        tokenizer=tokenizer,
        generation=generation,
        notes=(*_notes(family, values, unknown), *missing, *beyond),
    )


READER = Reader(
    kind=KIND,
    summary=f"a {KIND} ({', '.join(FAMILIES)})",
    recognises=recognises,
    read=read,
)
