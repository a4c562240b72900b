"""The provider asked for is the provider used, or an error says what is missing and how to get it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpt_onnx.errors import ProviderError
from gpt_onnx.runtime import OnnxGPT
from gpt_onnx.runtime.providers import (
    Device,
    check_packages,
    check_suits,
    check_used,
    find_device,
    import_onnxruntime,
    installed_versions,
)

CPU, CUDA = Device(kind="cpu"), Device(kind="cuda")


@pytest.mark.parametrize(
    ("name", "target", "device"),
    [
        ("cpu", "cuda", "cpu"),
        ("cuda", "cpu", "cuda:0"),
        ("cuda:3", "cpu", "cuda:3"),
        ("auto", "cpu", "cpu"),
        ("auto", "portable", "cpu"),
        ("auto", "cuda", "cuda:0"),
    ],
)
def test_names_mean_devices(name: str, target: str, device: str) -> None:
    assert find_device(name, target).name == device


@pytest.mark.parametrize(
    "name", ["", "gpu", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda:1000", "cuda:٣", "cuda:0 ", None]
)
def test_unknown_names_are_refused(name: Any) -> None:
    with pytest.raises(ProviderError, match="choose auto, cpu, cuda or cuda:N"):
        find_device(name)


def test_a_misspelt_provider_is_reported_before_the_bundle_is_read() -> None:
    with pytest.raises(ProviderError, match="the provider is 'cdua'"):
        OnnxGPT.load("nowhere", provider="cdua")


@pytest.mark.parametrize(
    ("device", "installed", "message"),
    [
        (
            CPU,
            {"onnxruntime": "1.32.0", "onnxruntime-gpu": "1.30.0"},
            r"pip uninstall -y onnxruntime onnxruntime-gpu && pip install 'onnxruntime==1\.32\.0'",
        ),
        (
            CUDA,
            {"onnxruntime": "1.32.0", "onnxruntime-gpu": "1.30.0"},
            r"pip install 'onnxruntime-gpu==1\.30\.0'",
        ),
        (
            CUDA,
            {"onnxruntime": "1.32.0"},
            r"onnxruntime 1\.32\.0 is installed, .* pip install 'gpt-onnx\[cuda\]'",
        ),
    ],
)
def test_packages_that_cannot_serve_are_reported_with_the_command_that_mends_it(
    device: Device, installed: dict[str, str], message: str
) -> None:
    with pytest.raises(ProviderError, match=message):
        check_packages(device, installed)


@pytest.mark.parametrize(
    ("device", "installed"),
    [(CPU, {"onnxruntime": "1.32.0"}), (CPU, {"onnxruntime-gpu": "1.30.0"}), (CUDA, {}), (CPU, {})],
)
def test_one_package_or_an_unknown_one_is_left_to_the_import(
    device: Device, installed: dict[str, str]
) -> None:
    check_packages(device, installed)


def test_installed_packages_are_those_that_pip_reports() -> None:
    for package in ("onnxruntime", "onnxruntime-gpu"):
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            assert package not in installed_versions()
        else:
            assert installed_versions()[package] == version


def test_both_packages_are_found_in_whatever_folders_they_are(tmp_path: Path) -> None:
    names = ("one/onnxruntime-1.32.0.dist-info", "two/onnxruntime_gpu-1.30.0.dist-info")
    for name in (*names, "two/onnxruntime-1.20.0.dist-info", "two/onnxruntime_genai-0.6.0.dist-info"):
        (tmp_path / name).mkdir(parents=True)
    folders = [str(tmp_path / name) for name in ("not-there", "one", "two")]
    assert installed_versions(folders) == {"onnxruntime": "1.32.0", "onnxruntime-gpu": "1.30.0"}


def fake_import(monkeypatch: pytest.MonkeyPatch, found: Callable[[], Any]) -> None:
    """Have no package installed, and ``import onnxruntime`` give ``found()``."""

    monkeypatch.setattr("gpt_onnx.runtime.providers.installed_versions", dict)
    monkeypatch.setattr(importlib, "import_module", lambda name: found())


def test_a_missing_package_is_one_sentence_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> Any:
        raise ModuleNotFoundError("No module named 'onnxruntime'")

    fake_import(monkeypatch, absent)
    with pytest.raises(ProviderError, match=r"pip install 'gpt-onnx\[cpu\]'"):
        import_onnxruntime(CPU)
    with pytest.raises(ProviderError, match=r"pip install 'gpt-onnx\[cuda\]'"):
        import_onnxruntime(CUDA)


def test_an_empty_folder_that_pip_left_is_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_import(monkeypatch, SimpleNamespace)
    with pytest.raises(ProviderError, match=r"pip install 'gpt-onnx\[cpu\]'"):
        import_onnxruntime(CPU)


def test_a_build_without_the_provider_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    build = SimpleNamespace(__version__="1.30.0", get_available_providers=lambda: ["CPUExecutionProvider"])
    fake_import(monkeypatch, lambda: build)
    with pytest.raises(ProviderError, match=r"onnxruntime 1\.30\.0 has only CPUExecutionProvider"):
        import_onnxruntime(CUDA)


def test_a_session_that_fell_back_is_refused() -> None:
    session = SimpleNamespace(get_providers=lambda: ["CPUExecutionProvider"])
    check_used(session, CPU)
    with pytest.raises(ProviderError, match="ONNX Runtime used CPUExecutionProvider"):
        check_used(session, CUDA)


def test_telemetry_is_off_before_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    import_onnxruntime(CPU)
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"


def test_a_cpu_bundle_on_cuda_is_refused_with_the_export_command(make_manifest: Any) -> None:
    gqa = make_manifest("dynamic", "gqa")
    with pytest.raises(ProviderError, match="gpt-onnx export SOURCE --target portable"):
        check_suits(gqa, CUDA)
    with pytest.raises(ProviderError, match=r"--target portable"):  # its cache is in the CPU's memory
        check_suits(gqa.replace(precision="fp16"), CUDA)
    check_suits(gqa, CPU)
    check_suits(make_manifest("dynamic", "decomposed"), CUDA)


def test_a_real_cpu_bundle_is_refused_before_onnxruntime_is_asked(tiny_bundle: Any) -> None:
    with pytest.raises(ProviderError, match="--target portable"):
        OnnxGPT.load(tiny_bundle().path, provider="cuda")


@pytest.mark.skipif("onnxruntime-gpu" in installed_versions(), reason="CUDA may be there")
def test_cuda_without_its_package_is_refused(tiny_bundle: Any) -> None:
    with pytest.raises(ProviderError, match=r"cuda:1 needs onnxruntime-gpu"):
        OnnxGPT.load(tiny_bundle("portable").path, provider="cuda:1")


@pytest.mark.cuda
@pytest.mark.skipif("onnxruntime-gpu" not in installed_versions(), reason="needs onnxruntime-gpu")
def test_a_portable_bundle_runs_wholly_on_cuda(tiny_bundle: Any) -> None:
    from gpt_onnx.runtime.placement import floats_off, placement

    nodes = placement(tiny_bundle("portable").path, provider="cuda")
    assert not floats_off(nodes, "CUDAExecutionProvider")


def test_cuda_libraries_of_pip_are_loaded_and_nothing_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def preload_dlls(directory: str) -> None:
        asked.append(directory)
        print("no such library")

    build = SimpleNamespace(
        __version__="1.30.0",
        get_available_providers=lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"],
        preload_dlls=preload_dlls,
    )
    monkeypatch.setattr(
        "gpt_onnx.runtime.providers.installed_versions", lambda: {"onnxruntime-gpu": "1.30.0"}
    )
    fake_import(monkeypatch, lambda: build)
    assert import_onnxruntime(CUDA) is build
    assert asked == [""]
    assert capsys.readouterr().out == ""


def test_a_float32_bundle_is_not_computed_in_tf32() -> None:
    name, options = CUDA.providers[0]
    assert (name, options["use_tf32"]) == ("CUDAExecutionProvider", "0")
