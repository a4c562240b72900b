"""The bundle's own graphs with products that round nothing to int8, so that small faults show.

What int8 inputs cost hides a lost bias or an epsilon of 1e-6. The same graphs with ``accuracy_level`` 0
multiply in float32, and are held to what float32 costs, as graphs in float32 are. What ships is looked at as
well; it is this but for the kernel of its products.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import onnx_ir as ir

from gpt_onnx.bundle import Bundle, seal
from gpt_onnx.runtime._arguments import counted

from .case import EXACT_PRODUCTS, SHORT, Case, Engine, Finding, Setting
from .cases import Level
from .decoding import decoding_cases
from .greedy import greedy_cases
from .trial import NOT_CHECKED
from .whole import check_rows

PRODUCT, LEVEL = "MatMulNBits", "accuracy_level"
EXACT = 0
LENGTHS = (2, 33)
LOOK = Level(lengths=LENGTHS, beyond=False, batches=(2,), chunks=(1, 7), decoded=17, greedy=16)
"""How thoroughly: little, as int8 has no fast kernel for it."""


def _with_exact_products(source: Path, destination: Path) -> None:
    """Write a graph whose products round nothing; its data stays where it is."""
    model = ir.load(source)
    for node in model.graph:
        if node.op_type == PRODUCT:
            node.attributes[LEVEL] = ir.AttrInt64(LEVEL, EXACT)
    ir.save(model, destination)


@contextlib.contextmanager
def exact_bundle(bundle: Bundle) -> Iterator[Path]:
    """Make the same bundle with exact products, for as long as it takes."""
    graph, quantization = bundle.manifest.graph, bundle.manifest.quantization
    assert quantization is not None
    with tempfile.TemporaryDirectory(prefix="gpt-onnx-exact-") as name:
        folder = Path(name)
        for path in bundle.manifest.files:
            (folder / path).parent.mkdir(exist_ok=True)
            if path in graph.graphs.values():
                _with_exact_products(bundle.path / path, folder / path)
            elif path in graph.data_files or path == "generation_config.json":
                shutil.copyfile(bundle.path / path, folder / path)  # readers refuse files with two links
        exact = dataclasses.replace(quantization, accuracy_level=EXACT)
        seal(folder, bundle.manifest.replace(quantization=exact, **NOT_CHECKED))
        yield folder


def _cases(setting: Setting) -> Iterator[Case]:
    for length in sorted({setting.facts.within(length) for length in LENGTHS}):
        rows = [row[:length] for row in setting.rows(setting.batches[-1])]
        name = f"{counted(length, 'token')}, batch {len(rows)}"
        yield Case(group="lengths", name=name, run=partial(check_rows, setting, rows))
    yield from decoding_cases(setting)
    yield from greedy_cases(setting)


def _checked(setting: Setting, case: Case) -> Finding:
    """Run a case in units of what float32 alone costs."""
    with setting.oracle.measured(exact_products=True):
        return case.run()


def exact_cases(setting: Setting, engine: Engine) -> Iterator[Case]:
    """Some of the usual cases, on the graphs with exact products.

    Args:
        setting: Of the bundle that ships.
        engine: Of the bundle with exact products.
    """
    exact = dataclasses.replace(setting, engine=engine, level=LOOK)
    longest = setting.facts.within(SHORT)
    with setting.oracle.measured(exact_products=True):
        setting.oracle.hold(*(ids[:longest] for ids in exact.sequences.values()))
    for case in _cases(exact):
        yield Case(
            group=EXACT_PRODUCTS, name=f"{case.group}: {case.name}", run=partial(_checked, exact, case)
        )
