"""``gpt-onnx web``: what it prints, and what it refuses."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import gpt_onnx.web._vendor as vendor
from gpt_onnx.bundle import open_bundle
from gpt_onnx.cli.web import cache_folder, command
from gpt_onnx.errors import InputError

ASSETS = {library.name: f"// {library.name}\n".encode() for library in vendor.LIBRARIES}


def _small(library: vendor.Library) -> vendor.Library:
    return dataclasses.replace(library, sha256=hashlib.sha256(ASSETS[library.name]).hexdigest())


@pytest.fixture
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small files in place of the libraries, and a cache of their own."""
    folder = tmp_path / "assets"
    folder.mkdir()
    for name, content in ASSETS.items():
        (folder / name).write_bytes(content)
    monkeypatch.setattr(vendor, "LIBRARIES", tuple(map(_small, vendor.LIBRARIES)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def _run(*arguments: object) -> str:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_sentence_says_what_a_visit_loads(bigram: Path, assets: Path, tmp_path: Path) -> None:
    said = _run(bigram, "-o", tmp_path / "site", "--assets", assets)
    assert said.startswith(f"{tmp_path / 'site'}: built, ")
    assert "a first visit loads" in said
    assert open_bundle(tmp_path / "site" / "bundle").manifest.name == "bigram"


def test_json_has_the_same(bigram: Path, assets: Path, tmp_path: Path) -> None:
    report = json.loads(_run(bigram, "-o", tmp_path / "site", "--assets", assets, "--json"))
    visit = report["first_visit"]
    assert visit["total"] == visit["page"] + visit["runtime"] + visit["model"]
    assert report["built"] is True
    assert report["advice"] is None
    assert report["bytes"] > visit["total"]


def test_advice_stands_beside_the_answer(
    bigram: Path, assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt_onnx.web._build.advice_on", lambda manifest: f"{manifest.name} is slow.")
    said = ["-o", str(tmp_path / "site"), "--assets", str(assets), "--json"]
    result = CliRunner().invoke(command, [str(bigram), *said], catch_exceptions=False)
    assert result.exit_code == 0
    assert "bigram is slow." in result.stderr.splitlines()
    assert json.loads(result.stdout)["advice"] == "bigram is slow."


def test_samples_of_the_tokenizer_are_its_ids(bigram: Path, assets: Path, tmp_path: Path) -> None:
    from gpt_onnx import load

    _run(bigram, "-o", tmp_path / "site", "--assets", assets)
    samples = json.loads((tmp_path / "site/site.json").read_text(encoding="utf-8"))["tokenizer_samples"]
    gpt = load(bigram, provider="cpu")
    assert len(samples) == 6
    assert all(gpt.encode(text) == ids for text, ids in samples)


def test_output_is_named_after_the_bundle(
    bigram: Path, assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _run(bigram, "--assets", assets)
    assert (tmp_path / f"{bigram.name}-site" / "index.html").exists()


def test_assets_of_another_version_are_refused(bigram: Path, assets: Path, tmp_path: Path) -> None:
    (assets / "tokenizers.min.mjs").write_text("another")
    with pytest.raises(InputError, match="is not the pinned one"):
        _run(bigram, "-o", tmp_path / "site", "--assets", assets)


def test_bundle_that_no_browser_runs_is_refused(
    make_bundle: Callable[..., Path], assets: Path, tmp_path: Path
) -> None:
    from gpt_onnx.errors import BundleError

    with pytest.raises(BundleError, match="cannot run in a browser"):
        _run(make_bundle(layout="static"), "-o", tmp_path / "site", "--assets", assets)


def test_port_out_of_range_is_a_usage_error(bigram: Path) -> None:
    assert CliRunner().invoke(command, [str(bigram), "--port", "65536"]).exit_code == 2


def test_libraries_are_kept_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "gpt-onnx" / "web"


SERVER = """
import dataclasses, hashlib, pathlib, sys
import gpt_onnx.web._vendor as vendor
hashes = [hashlib.sha256((pathlib.Path(sys.argv[1]) / one.name).read_bytes()) for one in vendor.LIBRARIES]
pairs = zip(vendor.LIBRARIES, hashes, strict=True)
vendor.LIBRARIES = tuple(dataclasses.replace(one, sha256=digest.hexdigest()) for one, digest in pairs)
from gpt_onnx.cli import main
sys.exit(main(["web", *sys.argv[2:], "--assets", sys.argv[1]]))
"""


def test_serve_builds_answers_and_ends_with_ctrl_c(bigram: Path, assets: Path, tmp_path: Path) -> None:
    arguments = [str(assets), str(bigram), "-o", str(tmp_path / "site"), "--serve", "--port", "0"]
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        with urllib.request.urlopen(url, timeout=20) as answer:
            assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
            assert b"<title>bigram</title>" in answer.read()
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=20)
    assert server.returncode == 130
