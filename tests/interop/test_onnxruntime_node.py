"""onnxruntime-node alone, oldest to newest: a loop over the graph in JavaScript (js/greedy.mjs)."""

from __future__ import annotations

from typing import Any

from gpt_onnx.clients import NODE
from tests.interop._cases import every_bundle
from tests.interop._javascript import each_node, in_node
from tests.interop._running import each_version
from tests.interop._told import check_as_told
from tests.interop._worker import Worker

ERROR = "GatherBlockQuantized|Only 4b quantization is supported"
version = each_version(NODE)
worker = each_node(NODE, "greedy_node.mjs")


@every_bundle
def test_greedy_text_is_as_the_table_says(
    bundles: Any, worker: Worker, version: str, name: str, precision: str, target: str
) -> None:
    known = bundles(name, precision, target)
    check_as_told(
        NODE,
        version,
        known,
        lambda batches: [in_node(worker, NODE, version, known, rows) for rows in batches],
        ERROR,
    )
