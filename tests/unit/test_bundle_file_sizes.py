"""One number says what a bundle weighs, whoever tells it: all of its files as they lie on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.bundle import describe_bundle, file_sizes, open_bundle


@pytest.mark.parametrize("options", [{}, {"seq_len": 16}, {"kv_cache": False}])
def test_export_and_inspect_tell_the_bytes_of_the_folder(exported: Any, options: dict[str, Any]) -> None:
    report = exported(**options)
    files = [file for file in report.path.rglob("*") if file.is_file()]
    on_disk = {file.relative_to(report.path).as_posix(): file.stat().st_size for file in files}
    assert file_sizes(report.path) == on_disk
    assert on_disk["manifest.json"] > 0
    total = sum(on_disk.values())
    assert report.nbytes == describe_bundle(open_bundle(report.path))["bytes"]["total"] == total


def test_a_folder_that_is_not_sealed_has_no_weight(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError):
        file_sizes(tmp_path)
