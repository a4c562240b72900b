"""The graph as other clients feed it: whole batches, padded, with masks and positions, then batched steps.

The portable graph is right for padding on either side. GroupQueryAttention knows padding on the right only,
and several new tokens over a past only for one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gpt_onnx.runtime._arguments import counted

from .bare import BareGraph
from .case import Case, Finding, Logits, Setting
from .cases import Ids
from .padding import Mask, mask_of, padded, real_parts, worst_of_rows

WIDTH = 33
STEPS = (3, 1, 1)  # new tokens of the runs after a prompt
SIDES = {"gqa": ("right",), "decomposed": ("left", "right")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """What these cases share."""

    setting: Setting
    open_graph: Callable[[], BareGraph]
    """Opens the graph where it is not open; what it returns is not to be kept."""

    def check_padded(self, rows: Sequence[Ids], width: int, side: str) -> Finding:
        """Compare real positions with each row's truth, twice, with other ids on the padding."""
        mask = mask_of([len(row) for row in rows], width, side)
        first, second = (self._logits(rows, mask, stream) for stream in (200, 201))
        found, again = real_parts(first, mask), real_parts(second, mask)
        same = all(one.tobytes() == other.tobytes() for one, other in zip(found, again, strict=True))
        fault = None if same else "other ids on the padding change the logits of real tokens"
        fault = fault if np.isfinite(first).all() else "logits on padding are not finite"
        return Finding(ratio=worst_of_rows(self.setting, rows, found), fault=fault)

    def _logits(self, rows: Sequence[Ids], mask: Mask, stream: int) -> Logits:
        return self.open_graph().run(padded(rows, mask, self.setting.facts.vocab_size, stream), mask)[0]

    def check_steps(self, rows: Sequence[Ids], prompts: Sequence[int], width: int) -> Finding:
        """Prefill prompts of unequal lengths, padded on the left, then append to all rows at once."""
        graph, mask = self.open_graph(), mask_of(prompts, width, "left")
        heads = [row[:length] for row, length in zip(rows, prompts, strict=True)]
        logits, past = graph.run(padded(heads, mask, self.setting.facts.vocab_size, 202), mask)
        found = [[part] for part in real_parts(logits, mask)]
        done = np.array(prompts)
        for count in STEPS:
            new = np.array([row[start : start + count] for row, start in zip(rows, done, strict=True)])
            mask = np.concatenate([mask, np.ones_like(new)], axis=1)
            logits, past = graph.run(new, mask, past)
            done += count
            for gathered, part in zip(found, logits, strict=True):
                gathered.append(part)
        whole = [row[:length] for row, length in zip(rows, done, strict=True)]
        return Finding(ratio=worst_of_rows(self.setting, whole, [np.concatenate(parts) for parts in found]))


def client_cases(setting: Setting, attention: str, open_graph: Callable[[], BareGraph]) -> Iterator[Case]:
    """Whole, padded and growing batches; nothing for graphs that are frozen or have no cache."""
    if setting.facts.layout != "dynamic":
        return
    clients, batch = Clients(setting=setting, open_graph=open_graph), setting.batches[-1]
    batch = setting.facts.batch_size or batch
    width = setting.facts.within(WIDTH)
    rows = setting.rows(batch)
    whole = [row[:width] for row in rows]
    ragged = [row[: max(1, width - 7 * index)] for index, row in enumerate(rows)]
    emptied = [() if index == batch // 2 else row for index, row in enumerate(ragged)]
    run = partial(clients.check_padded, whole, width, "right")
    yield Case(group="clients", name=f"{counted(width, 'token')}, batch {batch}", run=run)
    for side in SIDES.get(attention, ()):
        for name, chosen in (("padded", ragged), ("an empty row, padded", emptied)):
            run = partial(clients.check_padded, chosen, width, side)
            yield Case(group="clients", name=f"{name} on the {side}, batch {batch}", run=run)
    prompt = width - sum(STEPS)
    if "left" in SIDES.get(attention, ()) and prompt > 0:
        prompts = [max(1, prompt - 7 * index) for index in range(batch)]
        run = partial(clients.check_steps, rows, prompts, prompt)
        yield Case(group="clients", name=f"batched steps after padding on the left, batch {batch}", run=run)
