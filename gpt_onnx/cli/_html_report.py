"""The result of ``gpt-onnx verify`` as one HTML page that needs nothing else: no script, font or image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from gpt_onnx.cli._result_file import Kind

if TYPE_CHECKING:
    from gpt_onnx.bundle import Manifest

START = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="generator" content="gpt-onnx verify">
"""
REPORT = Kind(words="a report of gpt-onnx verify", start=re.compile(re.escape(START.encode())))
PAGE = """\
{start}<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; margin: 0 0 1.5rem; }}
th, td {{ text-align: left; padding: .2rem 1rem .2rem 0; border-bottom: 1px solid #8884; }}
td.number {{ text-align: right; font-variant-numeric: tabular-nums; }}
code {{ font-size: .8rem; overflow-wrap: anywhere; }}
.verdict {{ font-size: 1.25rem; font-weight: 600; }}
</style>
<main>
<h1>{title}</h1>
<p class="verdict">{verdict}</p>
{caveats}
{sections}
</main>
</html>
"""


def _cell(value: Any) -> str:
    """Return a table cell; numbers stand on the right, of floats three digits."""
    if isinstance(value, bool):
        return f"<td>{'ok' if value else 'FAILED'}</td>"
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'
    if isinstance(value, float):
        return f'<td class="number">{value:.3g}</td>'
    return f"<td>{'-' if value is None else escape(str(value))}</td>"


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a section with a table, or nothing where there are no rows."""
    body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    return f"<h2>{escape(title)}</h2>\n{table}" if body else ""


def _facts(found: Mapping[str, Any], manifest: Manifest) -> str:
    graph, model = manifest.graph, manifest.model
    rows = [
        ("model", manifest.name),
        ("parameters", model.parameters),
        ("target", f"{manifest.target}, {manifest.precision}, layout {graph.layout}"),
        ("opset and IR version", f"{graph.opset} and {graph.ir_version}"),
        ("computed on", found["provider"] or "nothing was computed"),
        ("ONNX Runtime", found["onnxruntime"]),
        ("made with", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())),
        ("made from", f"SHA-256 {manifest.source_sha256}"),
    ]
    return _table("Bundle", ("", ""), rows)


def _cases(found: Mapping[str, Any]) -> str:
    columns = ("sequence", "tokens", "logits", "error / bound", "RMS error / bound", "")
    keys = ("name", "tokens", "logits", "max_ratio", "rms_ratio", "passed")
    return _table("Stored logits", columns, [[case[key] for key in keys] for case in found["cases"]])


def _greedy(found: Mapping[str, Any]) -> str:
    greedy = found["greedy"] or {}
    rows = [[greedy["tokens"], greedy["compared"], greedy["passed"]]] if greedy else []
    return _table("Greedy tokens", ("stored", "compared", ""), rows)


def _against(found: Mapping[str, Any]) -> str:
    gate = found["against"] or {"cases": []}
    columns = ("group", "case", "error / float32's own", "RMS", "")
    rows = [
        [case["group"], case["name"], case.get("ratio"), case.get("rms_ratio"), case["passed"]]
        for case in gate["cases"]
    ]
    return _table("Compared with the source", columns, rows)


def _files(manifest: Manifest) -> str:
    rows = [[name, entry.size, entry.sha256] for name, entry in manifest.files.items()]
    return _table("Files", ("file", "bytes", "SHA-256"), rows)


def html_report(
    found: Mapping[str, Any], manifest: Manifest, verdict: str, caveats: Iterable[str] = ()
) -> str:
    """Return the page.

    Args:
        found: What ``gpt-onnx verify --json`` prints.
        manifest: The bundle's description of itself.
        verdict: One sentence.
        caveats: What a reader must know about how the bundle was made.
    """
    parts = (_facts(found, manifest), _cases(found), _greedy(found), _against(found), _files(manifest))
    return PAGE.format(
        start=START,
        title=escape(f"{manifest.name}: verified by gpt-onnx"),
        verdict=escape(verdict),
        caveats="\n".join(f"<p>{escape(line)}</p>" for line in caveats),
        sections="\n".join(part for part in parts if part),
    )
