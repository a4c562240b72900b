"""Build sdist and wheel, install the wheel in an environment of its own, and run it outside the repository.

python scripts/check_wheel.py

What a checkout hides is found here: a package that the list in pyproject.toml forgets, a link that an archive
turned into a file, data that the wheel lacks.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = "import gpt_onnx.config as c; assert 'gpt2' in c.named_configs(); c.named_config('sotu')"


def build(folder: Path) -> Path:
    """Build the sdist, and from the sdist the wheel; return the wheel."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return next(folder.glob("*.whl"))


def check_names(wheel: Path) -> None:
    """Make sure that nothing but gpt_onnx would be installed."""
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    leaked = {name for name in names if name != "gpt_onnx" and not name.endswith(".dist-info")}
    if leaked:
        sys.exit(f"the wheel would install {sorted(leaked)} besides gpt_onnx")


def check_page(wheel: Path) -> None:
    """Make sure that every file of the browser's page is in it."""
    here = {path.relative_to(ROOT).as_posix() for path in (ROOT / "gpt_onnx" / "web").rglob("*.*")}
    wanted = {name for name in here if "__pycache__" not in name}
    if missing := wanted - set(zipfile.ZipFile(wheel).namelist()):
        sys.exit(f"the wheel lacks {sorted(missing)}")


def run_installed(wheel: Path, folder: Path) -> None:
    """Install the wheel alone, borrowing the dependencies of this environment, and run it elsewhere."""
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    site = subprocess.run(
        [str(python), "-c", "import site; print(site.getsitepackages()[0])"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    zipfile.ZipFile(wheel).extractall(site)
    own = next(path for path in sys.path if path.endswith("site-packages"))
    Path(site, "borrowed.pth").write_text(own + "\n")
    for arguments in (["-m", "gpt_onnx", "--version"], ["-m", "gpt_onnx", "export", "-h"], ["-c", PROGRAM]):
        subprocess.run([str(python), *arguments], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    where = "import gpt_onnx.export as e, gpt_onnx.runtime as r; print(e.__file__, r.__file__)"
    found = subprocess.run([str(python), "-c", where], check=True, cwd=folder, capture_output=True, text=True)
    if str(ROOT) in found.stdout:
        sys.exit(f"the installed package was not the one that ran: {found.stdout}")


def main() -> None:
    """Run all of it in a temporary folder."""
    with tempfile.TemporaryDirectory() as name:
        wheel = build(Path(name))
        check_names(wheel)
        check_page(wheel)
        run_installed(wheel, Path(name))
    print(f"{wheel.name}: builds, installs nothing but gpt_onnx, and runs outside the repository")


if __name__ == "__main__":
    main()
