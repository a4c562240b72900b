"""A state dict of one's own: its tensors, with the configuration and the names that the user gives.

Read are files of ``torch.save(model.state_dict(), path)`` or of a dict that holds one under a usual name,
and files of safetensors and of ``np.savez``. Without ``--names`` the tables that are known here are tried,
and one is taken only if it leaves nothing over on either side. What tensors cannot say is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from gpt_onnx.checkpoint.archive import LazyTensor, is_archive, read_archive, state_dict_of
from gpt_onnx.checkpoint.assembly import Reading, asking_reader, reading_of
from gpt_onnx.checkpoint.given_names import check_masks, reading_under_names
from gpt_onnx.checkpoint.names import OURS, Name, Naming
from gpt_onnx.checkpoint.naming import matches_of
from gpt_onnx.checkpoint.npz_store import NpzStore, is_npz
from gpt_onnx.checkpoint.readers import hf_gpt2, hf_llama
from gpt_onnx.checkpoint.readers._reader import ReadOptions
from gpt_onnx.checkpoint.renamed_store import without_prefixes
from gpt_onnx.checkpoint.safetensors_store import SafetensorsStore
from gpt_onnx.checkpoint.spellings import spelled
from gpt_onnx.checkpoint.store import Store
from gpt_onnx.checkpoint.torch_store import TorchStore
from gpt_onnx.checkpoint.unnamed import REMEDY, check_spelled
from gpt_onnx.errors import CheckpointError, GptOnnxError, InputError

KIND = "state dict"
HOLDERS = ("model", "state_dict", "model_state_dict", "module", "net", "weights", "params")
"""Under which of these a saved dict may hold the state dict."""
USUAL = "the usual words"
_HEAD = Name("lm_head.weight", "lm_head.weight")
OWN = Naming(tuple(Name(name, name) for name in OURS))


def _is_state(value: object) -> bool:
    return isinstance(value, dict) and any(isinstance(child, LazyTensor) for child in value.values())


def _state(root: object, path: Path) -> dict[str, LazyTensor]:
    """Find the state dict in what was saved.

    Raises:
        CheckpointError: if there is none, or there are several.
    """
    if _is_state(root) or not isinstance(root, dict):
        return state_dict_of(root, path)
    found = [key for key in HOLDERS if _is_state(root.get(key))]
    if not found:
        raise CheckpointError(
            f"{path} holds a dict without tensors, and none under {', '.join(HOLDERS)}; save the weights "
            "with torch.save(model.state_dict(), path)."
        )
    if len(found) > 1:
        raise CheckpointError(f"{path} holds tensors under {' and '.join(found)}; save one state dict alone.")
    return state_dict_of(root[found[0]], path, found[0])


def _from_torch(path: Path) -> Store:
    return TorchStore(path, _state(read_archive(path).root, path))


def _from_safetensors(path: Path) -> Store:
    return SafetensorsStore(path, floats_only=False)


def _is_safetensors(path: Path) -> bool:
    return path.suffix.lower() == ".safetensors"


FORMS: tuple[tuple[Callable[[Path], bool], Callable[[Path], Store]], ...] = (
    (_is_safetensors, _from_safetensors),
    (is_npz, NpzStore),
    (is_archive, _from_torch),
)
"""How a file is known, and what opens it; an npz is a zip, as files of torch.save are, and comes first."""


def recognises(path: Path) -> bool:
    """Whether it is a file of tensors; readers that know more of theirs have looked at it before."""
    return path.is_file() and any(knows(path) for knows, _ in FORMS)


def _under(naming: Naming, prefix: str) -> Naming:
    names = (Name(prefix + name.theirs, name.ours, name.transposed) for name in naming.names)
    return Naming(tuple(names), tuple(prefix + text for text in naming.ignored))


def _tables(store: Store) -> Iterator[tuple[str, Naming]]:
    """Yield every table that is known here, with the name of its program."""
    yield "gpt-onnx", OWN
    for prefix in ("transformer.", ""):
        family = _under(hf_gpt2.NAMING, prefix)
        yield "Hugging Face's gpt2", Naming((*family.names, _HEAD), family.ignored)
    for prefix in ("model.", ""):
        family = _under(hf_llama.NAMING, prefix)
        yield "Hugging Face's llama", Naming((*family.names, _HEAD), family.ignored)
    found = spelled(store.tensors)
    if not found.unknown and not found.clashes:
        yield USUAL, found.naming


def _by_tables(store: Store) -> Reading:
    """Try the tables; take what leaves nothing over.

    Raises:
        InputError: if none fits, or two do and differ.
    """
    check_masks(store, Naming(()))
    readings: dict[str, Reading] = {}
    reasons: dict[str, str] = {}
    for program, naming in _tables(store):
        try:
            reading = reading_of(store, naming)
        except GptOnnxError as exc:
            reasons[program] = str(exc).removeprefix(f"{store.path}: ").removesuffix(".")
            continue
        matches = matches_of(reading.naming, store.tensors)
        if not any(matches == matches_of(other.naming, store.tensors) for other in readings.values()):
            readings[program] = reading
    if not readings:
        usual = spelled(store.tensors)
        check_spelled(usual, usual.naming, store)
        raise InputError(f"{store.path}: {reasons[USUAL]}; {REMEDY}.")
    if len(readings) > 1:
        raise InputError(f"{store.path} may have the names of {' or of '.join(readings)}; {REMEDY}.")
    (found,) = readings.items()
    program, reading = found
    return replace(reading, notes=(*reading.notes, f"Its tensors have the names of {program}."))


def _understood(path: Path, options: ReadOptions) -> Reading:
    store = next(opens for knows, opens in FORMS if knows(path))(path)
    if not store.tensors:
        raise CheckpointError(f"{path} holds no tensor of floating point; weights were expected.")
    if options.names is not None:
        return reading_under_names(options.names, store)
    return _by_tables(without_prefixes(store))


READER = asking_reader(
    kind=KIND,
    summary="a state dict (torch.save, safetensors, np.savez)",
    recognises=recognises,
    understood=_understood,
)
