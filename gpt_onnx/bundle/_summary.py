"""What ``read_graph`` returns: the parts of an ONNX file, without its weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

UNKNOWN_DIM = "?"
UNKNOWN_SHAPE = ("...",)
STANDARD_DOMAIN = ""

DTYPES: Mapping[int, tuple[str, int]] = {
    1: ("float32", 32),
    2: ("uint8", 8),
    3: ("int8", 8),
    4: ("uint16", 16),
    5: ("int16", 16),
    6: ("int32", 32),
    7: ("int64", 64),
    8: ("string", 0),
    9: ("bool", 8),
    10: ("float16", 16),
    11: ("float64", 64),
    12: ("uint32", 32),
    13: ("uint64", 64),
    14: ("complex64", 64),
    15: ("complex128", 128),
    16: ("bfloat16", 16),
    17: ("float8_e4m3fn", 8),
    18: ("float8_e4m3fnuz", 8),
    19: ("float8_e5m2", 8),
    20: ("float8_e5m2fnuz", 8),
    21: ("uint4", 4),
    22: ("int4", 4),
    23: ("float4_e2m1", 4),
    24: ("float8_e8m0", 8),
    25: ("uint2", 2),
    26: ("int2", 2),
}
"""Number of an ONNX element type to its name and its bits; strings have no fixed number of bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """Where the bytes of a weight are, outside of the graph."""

    location: str
    """Name of the file, beside the graph."""
    offset: int
    """First byte."""
    length: int
    """Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Initializer:
    """A weight or constant of a graph."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    bytes: int
    """Bytes that dtype and dims make."""
    external: External | None
    """Where they are; None: in the graph itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """An input or an output of a graph."""

    name: str
    elem_type: str
    """Name of the element type; "sequence", "map", ... for what is no tensor."""
    dims: tuple[int | str, ...]
    """Fixed and named dims; UNKNOWN_DIM for one that is neither; UNKNOWN_SHAPE if the rank is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One operation."""

    op: str
    domain: str
    """"" is the standard domain."""
    name: str
    inputs: tuple[str, ...]
    """Names of values; "" for an optional input that is left out."""
    outputs: tuple[str, ...]
    has_subgraph: bool
    """Whether an attribute holds a graph (If, Loop, Scan)."""
    integers: Mapping[str, int] = field(default_factory=dict)
    """Its attributes that are one integer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSummary:
    """What an ONNX file is made of."""

    ir_version: int
    opsets: dict[str, int]
    """Domain to version."""
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    initializers: tuple[Initializer, ...]
    nodes: tuple[Node, ...]
    functions: int
    """Functions that the file defines."""
    oddities: tuple[str, ...]
    """Parts that no exported GPT has: sparse weights, training graphs, ..."""

    @property
    def op_counts(self) -> dict[tuple[str, str], int]:
        """(domain, op) to the number of its nodes, the most frequent first."""
        counts = Counter((node.domain, node.op) for node in self.nodes)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
