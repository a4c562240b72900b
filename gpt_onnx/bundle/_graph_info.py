"""What a manifest says of the ONNX graphs: their layout, files, form and versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpt_onnx.bundle._names import shorten
from gpt_onnx.bundle._rules import FILE, POSITIVE, Rule, check_fields, choice, optional, texts_to
from gpt_onnx.errors import BundleError

LAYOUTS: Mapping[str, tuple[str, ...]] = {
    "dynamic": ("model",),
    "static": ("prefill", "decode"),
    "plain": ("model",),
}
"""Each layout with the roles of its graphs."""
ATTENTIONS = ("gqa", "decomposed", "traced")
_GRAPH_RULES: Mapping[str, Rule] = {
    "layout": choice(tuple(LAYOUTS)),
    "graphs": ("an object of roles and file names", texts_to(FILE[1])),
    "data": optional(FILE),
    "attention": choice(ATTENTIONS),
    "opset": POSITIVE,
    "ir_version": POSITIVE,
    "seq_len": optional(POSITIVE),
    "batch_size": optional(POSITIVE),
    "shards": ("a list of file names", lambda value: isinstance(value, list) and all(map(FILE[1], value))),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphInfo:
    """The ONNX graphs of a bundle.

    Raises:
        BundleError: if a value is of the wrong kind, or the graphs are not those of the layout.
    """

    layout: str
    """"dynamic": one graph with a cache. "static": two graphs of a frozen length. "plain": no cache."""
    graphs: dict[str, str]
    """Role ("model", or "prefill" and "decode") to the path of the graph in the bundle."""
    data: str | None
    """Path of the file of weights that all graphs share; None where weights are in the graph."""
    attention: str
    """One of ATTENTIONS; "traced": as the exporter found it in a module that is not ours."""
    opset: int
    """Version of the standard operators."""
    ir_version: int
    """Version of the ONNX file format."""
    seq_len: int | None = None
    """Tokens that the graph is frozen to; None: any number."""
    batch_size: int | None = None
    """Sequences that the graph is frozen to; None: any number."""
    shards: list[str] = field(default_factory=list)
    """Paths of further files of weights, in order, where one would be too large for a client."""

    def __post_init__(self) -> None:
        check_fields(self, _GRAPH_RULES, "graph.")
        if set(self.graphs) != set(roles := LAYOUTS[self.layout]):
            found = shorten(sorted(self.graphs))
            raise BundleError(f"graph.graphs has {found}; layout {self.layout} has {', '.join(roles)}.")
        if len(set(self.paths)) < len(self.paths):
            raise BundleError(
                f"graph names {shorten(self.paths)}; each graph and the data is a file of its own."
            )
        if self.shards and self.data is None:
            raise BundleError(
                f"graph.shards has {shorten(self.shards)} and graph.data is null; it is the first."
            )
        frozen = self.seq_len is not None
        if self.layout != "plain" and frozen != (self.layout == "static"):
            wanted = "a number" if self.layout == "static" else "null"
            raise BundleError(
                f"graph.seq_len is {self.seq_len}; it must be {wanted} in layout {self.layout}."
            )

    @property
    def data_files(self) -> list[str]:
        """Paths of the files of weights, in order; none where weights are in the graph."""
        return [self.data, *self.shards] if self.data else []

    @property
    def paths(self) -> list[str]:
        """Paths of the graphs and of their weights."""
        return [*self.graphs.values(), *self.data_files]
