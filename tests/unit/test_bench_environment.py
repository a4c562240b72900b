from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from gpt_onnx.runtime.bench.environment import cpu_facts, describe
from gpt_onnx.runtime.bench.memory import peak_resident_bytes, resident_bytes

X86 = """processor\t: 0
model name\t: A Processor @ 2.0GHz
flags\t\t: fpu sse avx avx2 fma avx512_vnni xsave

processor\t: 1
model name\t: Another
"""
ARM = "processor\t: 0\nBogoMIPS\t: 108.00\nFeatures\t: fp asimd aes asimddp\n"


def test_the_first_processor_is_named_with_the_flags_that_kernels_use(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(X86)
    assert cpu_facts(path) == ("A Processor @ 2.0GHz", ("avx", "avx2", "fma", "avx512_vnni"))


def test_arm_calls_flags_features(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(ARM)
    name, flags = cpu_facts(path)
    assert name
    assert flags == ("asimd", "asimddp")


def test_without_the_file_there_is_still_a_name(tmp_path: Path) -> None:
    name, flags = cpu_facts(tmp_path / "missing")
    assert name
    assert flags == ()


def test_the_environment_counts_the_cores_that_may_be_used() -> None:
    environment = describe(threads=1)
    assert 1 <= environment.usable_cores <= (os.cpu_count() or 1)
    assert environment.threads == 1
    assert "gpt-onnx" in environment.versions


def test_a_busy_machine_is_said() -> None:
    environment = replace(describe(threads=1), usable_cores=2, load_average=6.04)
    assert "load average 6.0 on 2 cores" in environment.notes[0]
    assert replace(environment, load_average=0.3).notes == []
    assert replace(environment, load_average=None).notes == []


def test_the_peak_of_memory_is_not_below_the_present() -> None:
    now, peak = resident_bytes(), peak_resident_bytes()
    if now is not None and peak is not None:
        assert 10 * 2**20 < now <= peak
