"""The weights of a Hugging Face folder: one file or shards, safetensors or pytorch_model.bin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gpt_onnx.checkpoint.archive import read_archive, state_dict_of
from gpt_onnx.checkpoint.naming import Naming
from gpt_onnx.checkpoint.safetensors_store import SafetensorsStore
from gpt_onnx.checkpoint.sharded_store import OpenShard, Shard, ShardedStore
from gpt_onnx.checkpoint.store import Stored
from gpt_onnx.checkpoint.torch_store import TorchStore
from gpt_onnx.errors import CheckpointError


class BinStore(TorchStore):
    """A file that torch.save wrote, of tensors by name; what is no weight is listed apart."""

    def __init__(self, path: Path) -> None:
        tensors = state_dict_of(read_archive(path).root, path)
        super().__init__(path, tensors)
        self.others: Mapping[str, Stored] = {
            name: tensor for name, tensor in tensors.items() if name not in self.tensors
        }


def _safetensors(path: Path) -> Shard:
    return SafetensorsStore(path, floats_only=False)


def _sharded(open_shard: OpenShard) -> Callable[[Path], Shard]:
    return lambda index: ShardedStore(index, open_shard)


FILES: Mapping[str, Callable[[Path], Shard]] = {
    "model.safetensors": _safetensors,
    "model.safetensors.index.json": _sharded(_safetensors),
    "pytorch_model.bin": BinStore,
    "pytorch_model.bin.index.json": _sharded(BinStore),
}
"""What weights lie in, in the order in which they are looked for, as transformers does."""
OTHER_PROGRAMS = ("tf_model.h5", "flax_model.msgpack", "rust_model.ot", "consolidated.00.pth")


def has_weights(folder: Path) -> bool:
    """Whether a folder has a file of FILES."""
    return any((folder / name).is_file() for name in FILES)


def open_weights(folder: Path) -> Shard:
    """Open the weights of a folder.

    Raises:
        CheckpointError: if there are none, or a file is damaged.
    """
    for name, opened in FILES.items():
        if (folder / name).is_file():
            return opened(folder / name)
    found = [name for name in OTHER_PROGRAMS if (folder / name).exists()]
    other = f", and {found[0]} is of another program" if found else ""
    raise CheckpointError(
        f"{folder} has no weights: none of {', '.join(FILES)}{other}; fetch them as well, or write the whole "
        "folder with save_pretrained."
    )


def refuse_others(store: Shard, naming: Naming) -> None:
    """Refuse a tensor of whole numbers that is no mask: a weight that was quantised.

    Raises:
        CheckpointError: naming the tensor.
    """
    for name, stored in store.others.items():
        if not naming.ignores(name):
            raise CheckpointError(
                f"{store.path}: {name} has dtype {stored.dtype!r}; weights are floating-point numbers: "
                "take the model as it was before it was quantised."
            )
