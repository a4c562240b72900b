"""The libraries of the page: fetched by npm at their pinned versions, checked, and kept.

    folder = vendor(Path("~/.cache/gpt-onnx/web").expanduser())      # npm runs the first time alone
    folder = vendor(cache, assets=Path("node_modules"))              # nothing is fetched

npm checks the packages against the hashes of ``npm/package-lock.json``; each file that is taken from them is
held to its own hash here, wherever it comes from.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from gpt_onnx.errors import InputError, ProviderError

NPM = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
TIMEOUT_S = 600
_PACK_LEVEL = 9
_HOST = re.compile(r"https?://\S+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """One file of a package."""

    package: str
    path: str
    """Within the package."""
    sha256: str

    @property
    def name(self) -> str:
        """Its bare name."""
        return self.path.rpartition("/")[2]

    @property
    def is_packed(self) -> bool:
        """Whether the page unpacks it: a quarter of the bytes, whatever a host does."""
        return self.path.endswith(".wasm")

    @property
    def kept_name(self) -> str:
        """What it is called in the site."""
        return f"{self.name}.gz" if self.is_packed else self.name


LIBRARIES = (
    Library(
        package="onnxruntime-web",
        path="dist/ort-wasm-simd-threaded.mjs",
        sha256="e13f7f94fc51b4ca72b12faeb1ee95f4ace6dfbc8939bc718aabdc0a27c4299b",
    ),
    Library(
        package="onnxruntime-web",
        path="dist/ort-wasm-simd-threaded.wasm",
        sha256="3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
    ),
    Library(
        package="@huggingface/tokenizers",
        path="dist/tokenizers.min.mjs",
        sha256="258e46332101335ce8d95aed7745b19ac3b46d37f3e159a89cf894c2ea9b1d3a",
    ),
)


def _pins() -> dict[str, bytes]:
    folder = files("gpt_onnx.web") / "npm"
    return {name: (folder / name).read_bytes() for name in ("package.json", "package-lock.json")}


def _found(folder: Path, library: Library) -> Path | None:
    """Return where a folder has a library: as npm lays it out, or by its bare name."""
    places = (
        folder / "node_modules" / library.package / library.path,
        folder / library.package / library.path,
        folder / library.name,
    )
    return next((place for place in places if place.is_file()), None)


def _checked(folder: Path, library: Library) -> Path:
    """Return the file of a library in a folder.

    Raises:
        InputError: if it is not there, or is another one.
    """
    path = _found(folder, library)
    if path is None:
        raise InputError(
            f"{folder} has no {library.name} of the npm package {library.package}; name a folder with the "
            "node_modules of gpt_onnx/web/npm."
        )
    if hashlib.sha256(path.read_bytes()).hexdigest() != library.sha256:
        raise InputError(
            f"{path} is not the pinned one: its SHA-256 is not {library.sha256[:12]}...; "
            "take the version of gpt_onnx/web/npm/package.json."
        )
    return path


def _last_words(stderr: str) -> str:
    """Return why npm failed, in its own words but for addresses."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    told = [line for line in lines if "A complete log" not in line]
    words = (told or lines or ["it says nothing"])[-1]
    return _HOST.sub("the registry", words)[:200].rstrip(".")


def _install(folder: Path) -> None:
    """Have npm fill a folder with the pinned packages.

    Raises:
        ProviderError: if npm is not there, or does not succeed.
    """
    npm = shutil.which(NPM[0])
    if npm is None:
        raise ProviderError(
            "npm is not installed here, and the page's libraries come from it; install Node.js, or name a "
            "folder that has them with --assets."
        )
    for name, content in _pins().items():
        (folder / name).write_bytes(content)
    try:
        done = subprocess.run(
            [npm, *NPM[1:]], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        failure = _last_words(done.stderr) if done.returncode else None
    except subprocess.TimeoutExpired:
        failure = f"nothing came within {TIMEOUT_S} s"
    if failure is not None:
        raise ProviderError(
            f"npm cannot fetch the page's libraries ({failure}); see that you are online, or name a folder "
            "that has them with --assets."
        )


def _keep(paths: Iterable[Path], folder: Path) -> None:
    """Copy the libraries into a folder that appears whole; another process may have made it meanwhile."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as name:
        staging = Path(name) / "libraries"
        staging.mkdir()
        for library, path in zip(LIBRARIES, paths, strict=True):
            content = path.read_bytes()
            packed = gzip.compress(content, _PACK_LEVEL, mtime=0) if library.is_packed else content
            (staging / library.kept_name).write_bytes(packed)
        try:
            os.replace(staging, folder)
        except OSError:
            if not folder.is_dir():
                raise


def _is_kept(folder: Path, library: Library) -> bool:
    """Whether a folder of the cache has a library, whole."""
    try:
        content = (folder / library.kept_name).read_bytes()
        plain = gzip.decompress(content) if library.is_packed else content
    except (OSError, EOFError, zlib.error):  # gzip's own error is an OSError
        return False
    return hashlib.sha256(plain).hexdigest() == library.sha256


def _fetched(kept: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        _install(Path(name))
        _keep([_checked(Path(name), library) for library in LIBRARIES], kept)


def vendor(cache: Path, assets: Path | None = None) -> Path:
    """Return a folder with the page's libraries as a site has them.

    Args:
        cache: Where they are kept between builds; made if it is not there.
        assets: A folder that has them already, as npm lays them out or by bare names; None: npm fetches them.

    Raises:
        InputError: if ``assets`` lacks one, or has another version.
        ProviderError: if npm is missing or cannot fetch them.
    """
    given = None if assets is None else [_checked(assets, library) for library in LIBRARIES]
    kept = cache / hashlib.sha256(b"".join(_pins().values())).hexdigest()[:16]
    if all(_is_kept(kept, library) for library in LIBRARIES):
        return kept
    shutil.rmtree(kept, ignore_errors=True)  # something of it was lost
    if given is None:
        _fetched(kept)
    else:
        _keep(given, kept)
    return kept
