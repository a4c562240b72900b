"""A module of one's own with a KV cache: its weights are put into our GPT by a table of names.

    export_bundle(module, "bundle", names="names.toml", config="config.toml")

The graph is our GPT's; what it is compared with is the user's own module. A module that computes something
else than the configuration says, such as another activation, fails there.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from gpt_onnx.checkpoint.assembly import Reading, assembled, question_sheet
from gpt_onnx.checkpoint.given_names import reading_under_names
from gpt_onnx.checkpoint.memory_store import MemoryStore
from gpt_onnx.errors import InputError

from .gate.mapped import MappedReference
from .gate.ours import GptReference
from .gate.reference import Reference
from .gpt_source import GptSource, hash_of_state
from .module_source import ModuleOfUser, in_float32, refuse_compiled, snake_case
from .options import ExportOptions
from .user_code import module_code


def _state(module: nn.Module) -> dict[str, Tensor]:
    with module_code("it was looked at"):
        refuse_compiled(module)
        state = in_float32(module).state_dict()
    return {name: tensor for name, tensor in state.items() if isinstance(tensor, Tensor)}


def _reading(state: dict[str, Tensor], name: str, options: ExportOptions) -> Reading:
    """Find out what the weights say under the table of names.

    Raises:
        InputError: if there is no table, or it cannot be understood.
        CheckpointError: if it leaves tensors over on either side.
    """
    if options.names is None:
        raise InputError(f"{name} needs a table of names (--names FILE) to become our GPT.")
    return reading_under_names(Path(options.names), MemoryStore(state, name))


def mapped_template(module: nn.Module, options: ExportOptions, name: str | None = None) -> str:
    """Return the text of a --config file for a module whose weights a table of names maps."""
    shown = name or type(module).__name__
    reading = _reading(_state(module), shown, options)
    return question_sheet(reading, options.reading, path=Path(shown))


def mapped_source(module: nn.Module, options: ExportOptions, name: str | None = None) -> GptSource:
    """Take a module as our GPT with its weights, and it itself as what the graph is compared with.

    Args:
        module: The user's.
        options: With a table of names, and a configuration.
        name: What messages call it.

    Raises:
        InputError: if a question about the configuration is open.
        ConfigError: if an answer is not understood, or contradicts a tensor.
        CheckpointError: if the table leaves tensors over on either side.
        ExportError: if it is no eager module with weights.
    """
    shown = name or type(module).__name__
    state = _state(module)
    reading = _reading(state, shown, options)
    checkpoint = assembled(reading, options.reading, path=Path(shown), kind="module")
    config = checkpoint.config

    def reference() -> Reference:
        with module_code("it was copied to float64"):
            theirs = ModuleOfUser(module, name=source.name)
        return MappedReference(theirs, GptReference.of_weights(config, checkpoint.tensor, is_original=True))

    source = GptSource(
        name=snake_case(type(module).__name__),
        config=config,
        read=checkpoint.numpy,
        reference=reference,
        sha256=lambda: hash_of_state(state, repr(sorted(config.to_dict().items()))),
        tokenizer=checkpoint.tokenizer,
        notes=checkpoint.notes,
    )
    return source
