"""Our own checkpoint: a folder with ``config.json`` (GPTConfig), ``model.safetensors`` and a tokenizer.

The configuration is read first; then the names and shapes of the weights, from the file's header alone, are
held against the model that it describes. ``generation_config.json`` is read where there is one.
"""

from __future__ import annotations

from pathlib import Path

from gpt_onnx.checkpoint.checkpoint import Checkpoint
from gpt_onnx.checkpoint.generation import read_generation
from gpt_onnx.checkpoint.layout import CONFIG_FILE, CONVERTED_FROM, WEIGHTS_FILE
from gpt_onnx.checkpoint.readers._reader import Reader, ReadOptions, find_tokenizer, refuse_options
from gpt_onnx.checkpoint.recipe import Recipe, check_recipes
from gpt_onnx.checkpoint.safetensors_store import SafetensorsStore
from gpt_onnx.config import GPTConfig, read_json_object
from gpt_onnx.parameter_shapes import parameter_shapes

KIND = "gpt-onnx checkpoint"


def recognises(path: Path) -> bool:
    """Whether it is a folder with both files; other readers have looked at it before."""
    return path.is_dir() and all((path / name).is_file() for name in (CONFIG_FILE, WEIGHTS_FILE))


def read(path: Path, options: ReadOptions) -> Checkpoint:
    """See Reader."""
    refuse_options(options, KIND)
    config = GPTConfig.from_dict(read_json_object(path / CONFIG_FILE), origin=str(path / CONFIG_FILE))
    store = SafetensorsStore(path / WEIGHTS_FILE)
    recipes = {name: Recipe.of(name, *shape) for name, shape in parameter_shapes(config).items()}
    check_recipes(store, recipes)
    generation, beyond = read_generation(path, {}, config.vocab_size)
    return Checkpoint(
        path=path,
        kind=KIND,
        config=config,
        store=store,
        recipes=recipes,
        tokenizer=find_tokenizer(path, options.tokenizer, config),
        generation=generation,
        notes=beyond,
        is_original=CONVERTED_FROM not in store.metadata,
    )


READER = Reader(
    kind=KIND,
    summary=f"our own folder ({CONFIG_FILE}, {WEIGHTS_FILE})",
    recognises=recognises,
    read=read,
)
