"""What a bundle says about generation: end-of-text ids and the defaults of sampling.

    defaults = read_generation_defaults(bundle.file("generation_config.json"))
    defaults.eos_ids, defaults.sampling

The file is the one that other clients read: eos_token_id is an id or a list, do_sample = false is greedy,
and a value that is absent or null is the house default of ``Sampling``. Other keys are passed over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_onnx.errors import BundleError, InputError

from ._json import read_object
from .sampling import Sampling

MAX_FILE = 1 << 20  # bytes
MAX_EOS = 1024

_SAMPLING = tuple(field.name for field in dataclasses.fields(Sampling))


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDefaults:
    """How a bundle's text is generated unless the caller says otherwise."""

    sampling: Sampling = dataclasses.field(default_factory=Sampling)
    """The filters."""
    eos_ids: tuple[int, ...] = ()
    """Ids that end a text."""
    bos_id: int | None = None
    """The id that begins a text."""

    @classmethod
    def from_dict(
        cls,
        values: Mapping[str, Any],
        *,
        vocab_size: int | None = None,
        origin: str = "generation_config.json",
    ) -> GenerationDefaults:
        """Read the object of a generation_config.json; ``origin`` names it in errors.

        Raises:
            BundleError: if a value is out of range, or an id is not below ``vocab_size``.
        """
        eos = values.get("eos_token_id")
        eos_ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
        if len(eos_ids) > MAX_EOS:
            raise BundleError(
                f"{origin} has {len(eos_ids)} values of eos_token_id; at most {MAX_EOS} are read."
            )
        bos_id = values.get("bos_token_id")
        for token_id in [*eos_ids, *([] if bos_id is None else [bos_id])]:
            _check_id(token_id, vocab_size, origin)
        return cls(sampling=_sampling(values, origin), eos_ids=tuple(eos_ids), bos_id=bos_id)


def _check_id(token_id: object, vocab_size: int | None, origin: str) -> None:
    limit = 2**31 if vocab_size is None else vocab_size
    if type(token_id) is not int or not 0 <= token_id < limit:
        raise BundleError(f"{origin} has the token id {token_id!r}; ids are integers from 0 to {limit - 1}.")


def _sampling(values: Mapping[str, Any], origin: str) -> Sampling:
    given = {name: values[name] for name in _SAMPLING if values.get(name) is not None}
    if values.get("do_sample") is False:
        given["temperature"] = 0.0
    try:
        return Sampling(**given)
    except InputError as exc:
        raise BundleError(f"{origin}: {exc}") from exc


def read_generation_defaults(path: Path, *, vocab_size: int | None = None) -> GenerationDefaults:
    """Read a generation_config.json; a bundle without one has the house defaults and no end-of-text id.

    Raises:
        BundleError: if the file is damaged or a value is out of range.
    """
    if not path.exists():
        return GenerationDefaults()
    values = read_object(path, limit=MAX_FILE)
    return GenerationDefaults.from_dict(values, vocab_size=vocab_size, origin=path.name)
