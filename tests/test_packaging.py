"""What a checkout hides: packages that the list forgets, links, and what a light import drags in."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"gpt_onnx": "gpt_onnx", "export": "gpt_onnx.export", "runtime": "gpt_onnx.runtime"}


def _setuptools() -> dict[str, object]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        tool: dict[str, object] = tomllib.load(file)["tool"]["setuptools"]
    return tool


def _found_packages() -> set[str]:
    packages = set()
    for folder, package in FOLDERS.items():
        for path in (ROOT / folder).rglob("__init__.py"):
            inner = path.parent.relative_to(ROOT / folder).parts
            linked = any((ROOT / folder / Path(*inner[: n + 1])).is_symlink() for n in range(len(inner)))
            if not linked:
                packages.add(".".join((package, *inner)))
    return packages


def test_every_package_is_in_the_list() -> None:
    assert set(_setuptools()["packages"]) == _found_packages() | {"gpt_onnx.models"}  # type: ignore[call-overload]


def test_every_package_is_ours() -> None:
    assert all(name.split(".")[0] == "gpt_onnx" for name in _setuptools()["packages"])  # type: ignore[attr-defined]


def test_links_lead_to_the_folders() -> None:
    for name in ("export", "runtime", "models"):
        link = ROOT / "gpt_onnx" / name
        assert link.is_symlink()
        assert link.resolve() == ROOT / name


def test_the_folders_cannot_be_imported_under_their_own_names() -> None:
    for name in ("export", "runtime"):
        command = [sys.executable, "-c", f"import {name}"]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert f"import gpt_onnx.{name}, not the folder" in result.stderr


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = (
        "import sys, gpt_onnx; "
        "print(*sorted({'torch', 'onnx', 'onnxruntime', 'numpy', 'tokenizers', 'rich'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


def test_public_names_are_found_lazily() -> None:
    program = (
        "import gpt_onnx; "
        "print([getattr(gpt_onnx, name).__module__ for name in gpt_onnx.__all__ if name[0] != '_'])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "gpt_onnx.export" in result.stdout
    assert "gpt_onnx.runtime" in result.stdout


def test_a_missing_extra_is_one_sentence_with_the_pip_command() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "import gpt_onnx\n"
        "try: gpt_onnx.export_bundle\n"
        "except ImportError as exc: print(exc)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip().endswith("run: pip install 'gpt-onnx[cpu,export]'")


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    program = "import gpt_onnx\ntry: gpt_onnx.nothing\nexcept AttributeError as exc: print(exc)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "has no attribute 'nothing'" in result.stdout


def test_documents_speak_of_the_project_alone() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "models").rglob("*.md")]
    assert pages
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not [word for word in ("/work/", "/tmp/", "/root/") if word in text], page
