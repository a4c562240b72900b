"""``gpt-onnx inspect``: what a bundle is, without running it and without PyTorch, onnx or ONNX Runtime."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpt_onnx._figures import decimals
from gpt_onnx.cli._console import printing
from gpt_onnx.cli._options import bundle_argument, json_option, no_hash_option
from gpt_onnx.cli._streams import clean
from gpt_onnx.cli._units import in_units
from gpt_onnx.original import original_words

if TYPE_CHECKING:
    from rich.table import Table

PLAIN_WIDTH = 200
"""Columns where stdout is no terminal: a script must not meet wrapped lines."""

Facts = Mapping[str, Any]
_LAYER = re.compile(r"(?<=\.)([0-9]+)(?=\.)")


def _checks(facts: Facts) -> str:
    """Say what was checked, in the words that every command uses."""
    if not facts["checked"]:
        return "NOT checked against PyTorch"
    parity = facts["parity"] or {}
    details = [f"{parity['level']}"] if parity.get("level") else []
    if parity.get("cases") is not None:
        details.append(f"{parity['cases'] - (parity.get('skipped') or 0):,} cases")
    if parity.get("worst_ratio") is not None:
        details.append(f"worst error {parity['worst_ratio']:.3g} times what float32 costs")
    return f"checked ({', '.join(details)})" if details else "checked"


def _positions(model: Facts) -> str:
    trained = f", trained on {model['context_length']:,} tokens" if model["context_length"] else ""
    limit = f", at most {model['position_limit']:,}" if model["position_limit"] else ""
    return f"{model['position']}{trained}{limit}"


def _layout(facts: Facts) -> str:
    frozen = [
        f"{name} {facts[key]}" for name, key in (("length", "seq_len"), ("batch", "batch_size")) if facts[key]
    ]
    return f"{facts['layout']} ({', '.join([*frozen, facts['attention'] + ' attention'])})"


def _cache(facts: Facts) -> str:
    model = facts["model"]
    if not facts["cache_bytes_per_token"]:
        return "none"
    padded = (
        f", padded to {model['cache_head_size']}" if model["cache_head_size"] > model["head_size"] else ""
    )
    heads = f"{model['n_kv_head']} heads of {model['head_size']}{padded}"
    return f"{facts['cache_bytes_per_token']:,} B a token ({model['n_layer']} layers, {heads})"


def _weights(facts: Facts) -> str:
    """Say how weights are stored, and how far that is from float32."""
    from gpt_onnx.bundle._evidence import RANDOM_IDS
    from gpt_onnx.bundle._quantization_info import FLOAT_BITS

    info, quality = facts["quantization"], facts["quality"]
    stored = str(facts["precision"])
    if info is not None:
        head = "float32" if info["head_bits"] == FLOAT_BITS else f"int{info['head_bits']}"
        stored += (
            f" ({info['quantizer']}, blocks of {info['block_size']}, head {head}, "
            f"accuracy level {info['accuracy_level']})"
        )
    if quality is None:
        return stored
    ratio = quality["perplexity_ratio"]
    told = f"e^{decimals(quality['ln_perplexity_ratio'], 1)}" if ratio is None else decimals(ratio, 4)
    chance = f" of {RANDOM_IDS}" if quality["text"].startswith(RANDOM_IDS) else ""
    return (
        f"{stored}; KL {quality['kl_mean']:.3g}, perplexity x {told}, "
        f"top-1 {100 * quality['same_top']:.1f} % on {quality['tokens']:,} tokens{chance}"
    )


def _rows(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield what is said in one line each."""
    model = facts["model"]
    yield "target", facts["target"]
    yield "weights", _weights(facts)
    yield "layout", _layout(facts)
    yield "opset / IR", f"{facts['opset']} / {facts['ir_version']}"
    yield "parameters", f"{model['parameters']:,}, vocabulary {model['vocab_size']:,}"
    yield "positions", _positions(model)
    yield "cache", _cache(facts)
    yield "parity", _checks(facts)
    yield (
        "original",
        original_words(
            checked=facts["checked"],
            compared=facts["compared_with_original"],
            precision=facts["precision"],
        ),
    )
    yield "files", f"{facts['files']['count']}, {facts['files']['verified']} verified"
    yield "versions", ", ".join(f"{name} {version}" for name, version in facts["versions"].items())


def collapsed(ports: Iterable[Facts]) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and dims; ports that differ in the number of their layer alone are one."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for port in ports:
        dims = ", ".join(str(dim) for dim in port["dims"]) or "scalar"
        pattern = _LAYER.sub("{}", port["name"])
        alike.setdefault((pattern, port["type"], dims), []).extend(_LAYER.findall(port["name"]))
    for (pattern, kind, dims), layers in alike.items():
        span = f"{layers[0]}..{layers[-1]}" if len(layers) > 1 else "".join(layers)
        yield pattern.replace("{}", f"{{{span}}}" if len(layers) > 1 else span), kind, dims


def _table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, show_header=any(columns))
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def _add(table: Table, *cells: object) -> None:
    from rich.text import Text

    table.add_row(*(Text(clean(cell)) for cell in cells))


def _summary_table(facts: Facts) -> Table:
    table = _table("", "")
    for name, value in _rows(facts):
        _add(table, name, value)
    return table


def _bytes_table(facts: Facts) -> Table:
    table = _table("kind", "size", "bytes", right=("size", "bytes"))
    for kind, size in facts["bytes"].items():
        _add(table, kind, in_units(size), f"{size:,}")
    return table


def _ports_table(graph: Facts) -> Table:
    table = _table("", "name", "type", "dims")
    for kind in ("inputs", "outputs"):
        for port in collapsed(graph[kind]):
            _add(table, kind[:-1], *port)
    return table


def _ops_line(graph: Facts) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in graph["ops"].items())
    return f"{graph['nodes']:,} nodes: {counts}"


def _clients_table(facts: Facts) -> Table:
    table = _table("client", "versions tried", "runs", "what to know")
    for client in facts["clients"]:
        _add(table, client["name"], client["versions"], *_runs(client))
    return table


def _runs(client: Facts) -> tuple[str, str]:
    """Return "yes" or "no", and why, in sentences."""
    said = client["limits"] if client["runs"] else client["why_not"]
    return "yes" if client["runs"] else "no", "; ".join(said)


def _sections(facts: Facts) -> Iterator[tuple[str, Table | str]]:
    """Yield titles and what is under them, from the most to the least asked for."""
    yield facts["name"], _summary_table(facts)
    if "clients" in facts:
        yield "clients", _clients_table(facts)
        return
    yield "bytes", _bytes_table(facts)
    for role, graph in facts["graphs"].items():
        yield f"graph {role}: {graph['path']}", _ports_table(graph)
        yield f"operators of {role}", _ops_line(graph)


def _print(facts: Facts) -> None:
    from rich.text import Text

    with printing(None if sys.stdout.isatty() else PLAIN_WIDTH) as console:
        for index, (title, content) in enumerate(_sections(facts)):
            console.print("\n" * (index > 0) + clean(title), style="bold", soft_wrap=True)
            is_line = isinstance(content, str)
            console.print(Text(clean(content)) if is_line else content, soft_wrap=is_line)


@click.command("inspect")
@bundle_argument
@click.option("--clients", is_flag=True, help="Tell which other programs can run it, and why others cannot.")
@no_hash_option
@json_option
def command(bundle: Path, clients: bool, no_hash: bool, as_json: bool) -> None:
    """Say what a bundle is: graphs, sizes, versions and what was checked.

    The files are verified first, and the graphs are checked against the manifest; nothing is run. It needs
    neither PyTorch nor ONNX Runtime.
    """
    from gpt_onnx.bundle import describe_bundle, open_bundle

    opened = open_bundle(bundle, check_hashes=not no_hash)
    verified = "sizes" if no_hash else "sizes and SHA-256"
    files = {"count": len(opened.manifest.files), "verified": verified}
    facts = {"path": str(bundle)} | describe_bundle(opened) | {"files": files}
    if clients:
        from gpt_onnx.cli._clients_table import client_facts

        facts["clients"] = client_facts(opened)
    if as_json:
        click.echo(json.dumps(facts))
    else:
        _print(facts)
