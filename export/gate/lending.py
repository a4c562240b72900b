"""Weights that come a part at a time, so that float64 needs the memory of one layer and not of a model.

    weights = Weights.of_gpt(gpt)                      # or Weights(skeleton(config), checkpoint.tensor)
    single, double = weights.program(torch.float32), weights.program(torch.float64)
    with weights.lent("h.3.", single, double):         # read once; both have the weights of layer 3
        ...

A small model's weights stay where they were lent, and so does a head of ordinary size.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from gpt_onnx.model import GPT

Read = Callable[[str], Tensor]
"""Reads one weight by its name in ``GPT.state_dict``."""

SMALL = 2**28
"""Bytes in float64 of a model whose weights stay: 32 million parameters."""
HEAD_STAYS = 2**28
"""Bytes in float64 of a head that stays: 50,000 tokens of width 640."""
HEAD_ROWS = 2**24
"""Numbers of a larger head that exist in float64 at once: 128 MB."""


def hollow(gpt: GPT, dtype: torch.dtype) -> GPT:
    """Return the same program without its weights, in evaluation mode; they are to be of that dtype."""
    empty = {
        id(weight): nn.Parameter(weight.detach().to("meta", dtype), requires_grad=False)
        for weight in gpt.parameters()
    }
    return copy.deepcopy(gpt, memo=dict(empty)).eval()


def _place(gpt: GPT, name: str) -> tuple[nn.Module, str]:
    owner, _, leaf = name.rpartition(".")
    return gpt.get_submodule(owner), leaf


class Weights:
    """The weights of one GPT, to be lent to programs that have none.

    Args:
        gpt: What the programs are made like; its weights are not used.
        read: Reads a weight.
    """

    def __init__(self, gpt: GPT, read: Read) -> None:
        self.gpt = gpt
        self.read = read
        self.sizes = {name: weight.numel() for name, weight in gpt.named_parameters()}
        self.small = 8 * sum(self.sizes.values()) <= SMALL
        device = next(gpt.parameters()).device
        self.device = torch.device("cpu") if device.type == "meta" else device
        self._head: dict[str, Tensor] = {}

    @classmethod
    def of_gpt(cls, gpt: GPT) -> Weights:
        """Take those of a model in memory."""
        return cls(gpt, lambda name: gpt.get_parameter(name).detach())

    def program(self, dtype: torch.dtype) -> GPT:
        """Return a program without weights."""
        return hollow(self.gpt, dtype)

    @contextlib.contextmanager
    def lent(self, part: str, *programs: GPT) -> Iterator[None]:
        """Give programs the weights whose names begin so, for as long as it takes."""
        with self._given([name for name in self.sizes if name.startswith(part)], programs, self.small):
            yield

    @contextlib.contextmanager
    def rows_lent(self, rows: Tensor, *programs: GPT) -> Iterator[None]:
        """Give programs an embedding that has these rows of the vocabulary alone: ids count them."""
        table = self.read("wte.weight")
        with self._given(["wte.weight"], programs, stay=False, read=lambda _: table[rows.to(table.device)]):
            yield

    @contextlib.contextmanager
    def head_lent(self, program: GPT) -> Iterator[None]:
        """Give a program the head for as long as it takes, unless that is lent in blocks of its rows."""
        with self._given(self._head_names if self._head_is_whole else [], (program,), self.small):
            yield

    @property
    def _head_is_whole(self) -> bool:
        return self.small or 8 * self.sizes[self._head_names[0]] <= HEAD_STAYS

    def head(self, program: GPT, hidden: Tensor) -> Tensor:
        """Compute logits (..., V) of normed hidden states; a large head is lent in blocks of its rows."""
        if self._head_is_whole:
            with self._given(self._head_names, (program,), stay=True):
                return program.head(hidden)
        rows, width = program.config.vocab_size, max(1, HEAD_ROWS // program.config.n_embd)
        return torch.cat(
            [self._head_block(program, hidden, slice(low, low + width)) for low in range(0, rows, width)],
            dim=-1,
        )

    def _head_block(self, program: GPT, hidden: Tensor, rows: slice) -> Tensor:
        with self._given(self._head_names, (program,), stay=False, read=lambda name: self._kept(name)[rows]):
            return program.head(hidden)

    def _kept(self, name: str) -> Tensor:
        if name not in self._head:
            self._head[name] = self.read(name)
        return self._head[name]

    @property
    def _head_names(self) -> list[str]:
        """The matrix first."""
        own = [name for name in self.sizes if name.startswith("lm_head")]
        return ["wte.weight", *own] if self.gpt.config.tie_embeddings else sorted(own, reverse=True)

    @contextlib.contextmanager
    def _given(
        self, names: list[str], programs: tuple[GPT, ...], stay: bool, read: Read | None = None
    ) -> Iterator[None]:
        """Exchange weights of programs; those that stay are not read again."""
        places = {name: [_place(program, name) for program in programs] for name in names}
        before = []
        for name, owners in places.items():
            held = [(owner, leaf, owner.get_parameter(leaf)) for owner, leaf in owners]
            if read is None and not any(weight.is_meta for _, _, weight in held):
                continue
            tensor = (read or self.read)(name)
            for owner, leaf, weight in held:
                given = nn.Parameter(tensor.to(weight.dtype), requires_grad=False)
                before.append((owner, leaf, weight))
                setattr(owner, leaf, given)
        try:
            yield
        finally:
            for owner, leaf, weight in () if stay else reversed(before):
                setattr(owner, leaf, weight)
