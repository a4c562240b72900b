"""``gpt-onnx web``: a static site that runs a bundle in the browser."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpt_onnx._paths import real_path
from gpt_onnx.cli._console import note, plain_warnings
from gpt_onnx.cli._options import FOLDER, Integer, bundle_argument, json_option, overwrite_option
from gpt_onnx.cli._progress import stage_lines
from gpt_onnx.cli._units import in_units

if TYPE_CHECKING:
    from gpt_onnx.web import SiteReport

SUFFIX = "-site"
MAX_PORT = 65535


def cache_folder() -> Path:
    """Return where the page's libraries are kept: in the user's folder of caches."""
    if os.name == "nt":
        home = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "gpt-onnx" / "web"


def _default_output(bundle: Path) -> Path:
    """Return the bundle's name with -site, in the present folder."""
    return Path(real_path(bundle).name + SUFFIX)


def _sentence(report: SiteReport) -> str:
    parts = ", ".join(f"{name} {in_units(size)}" for name, size in report.parts.items())
    verb = "built" if report.built else "there already"
    return (
        f"{report.path}: {verb}, {report.files} files, {in_units(report.bytes)}; a first visit loads "
        f"{in_units(report.first_visit_bytes)} ({parts}), a later one nothing."
    )


def _serve(report: SiteReport, port: int, *, as_json: bool) -> None:
    from gpt_onnx.web import serve

    def tell(url: str) -> None:
        click.echo(json.dumps(report.to_json() | {"url": url}) if as_json else url)
        sys.stdout.flush()
        note("Ctrl-C ends the server.")

    serve(report.path, port, tell)


@click.command("web")
@bundle_argument
@click.option(
    "-o",
    "--output",
    type=FOLDER,
    metavar="DIR",
    show_default="BUNDLE's name with -site",
    help="Directory to write.",
)
@overwrite_option
@click.option("--serve", is_flag=True, help="Serve the site on this machine until Ctrl-C; built if need be.")
@click.option(
    "--port",
    type=Integer(min=0, max=MAX_PORT),
    metavar="N",
    default=8000,
    show_default=True,
    help="Port of --serve; 0 is a free one.",
)
@click.option(
    "--assets",
    type=FOLDER,
    metavar="DIR",
    show_default="npm fetches them once",
    help="Folder that has the page's libraries already: node_modules of gpt_onnx/web/npm, or the bare files.",
)
@json_option
def command(
    bundle: Path,
    output: Path | None,
    overwrite: bool,
    serve: bool,
    port: int,
    assets: Path | None,
    as_json: bool,
) -> None:
    """Build a static site that runs BUNDLE in the browser, on the reader's own device.

    The bundle is verified, and refused if no browser can run it. ONNX Runtime's WebAssembly and the tokenizer
    come from npm at pinned versions; the site asks no other server for anything.

    \b
    gpt-onnx web bundle -o site          # put the folder on any https host
    gpt-onnx web bundle --serve          # or look at it here

    With --serve the page may use threads; another host must send the headers in the site's _headers for that.
    """  # noqa: D301  # click takes the character, not the two letters, for "do not wrap"
    from gpt_onnx.web import build_site, vendor

    with plain_warnings(), stage_lines("build"):
        destination = output or _default_output(bundle)
        libraries = partial(vendor, cache_folder(), assets)
        report = build_site(bundle, destination, libraries, overwrite=overwrite, reuse=serve)
    if report.advice:
        note(report.advice)
    if not serve:
        click.echo(json.dumps(report.to_json()) if as_json else _sentence(report))
        return
    note(_sentence(report))
    _serve(report, port, as_json=as_json)
