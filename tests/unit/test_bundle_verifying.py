"""A bundle opened while its weights are hashed is verified no less, and no later than the block's end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpt_onnx.bundle._verifying as verification
from gpt_onnx.bundle import FileEntry, _hashing, open_bundle, verifying
from gpt_onnx.errors import BundleError, InputError

BundleMaker = Callable[..., Path]
DATA = "onnx/model.onnx_data"


def flip(path: Path, at: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_the_bundle_is_the_one_that_open_bundle_gives(make_bundle: BundleMaker) -> None:
    path = make_bundle()
    with verifying(str(path)) as bundle:
        assert bundle == open_bundle(path)


@pytest.mark.parametrize("at", [0, -1])
def test_damaged_weights_end_the_block(make_bundle: BundleMaker, at: int) -> None:
    path, reached = make_bundle(), False
    flip(path / DATA, at)
    with pytest.raises(BundleError, match=r"model\.onnx_data is damaged: its SHA-256"), verifying(path):
        reached = True
    assert reached


@pytest.mark.parametrize("name", ["config.json", "onnx/model.onnx", "tokenizer.json"])
def test_whatever_is_parsed_is_verified_before_the_block(make_bundle: BundleMaker, name: str) -> None:
    path = make_bundle()
    flip(path / name)
    with pytest.raises(BundleError, match=f"{Path(name).name} is damaged"), verifying(path):
        raise AssertionError("the block was entered")


def test_missing_and_shortened_weights_are_noticed_before_the_block(make_bundle: BundleMaker) -> None:
    path = make_bundle()
    os.truncate(path / DATA, (path / DATA).stat().st_size - 1)
    with pytest.raises(BundleError, match="bytes and its manifest says"), verifying(path):
        raise AssertionError("the block was entered")


def test_the_damage_is_told_rather_than_what_it_led_to(make_bundle: BundleMaker) -> None:
    path = make_bundle()
    flip(path / DATA)
    with pytest.raises(BundleError, match="is damaged") as caught, verifying(path):
        raise InputError("a consequence")
    assert str(caught.value.__context__) == "a consequence"


def test_an_error_over_sound_weights_is_left_alone(make_bundle: BundleMaker) -> None:
    with pytest.raises(InputError, match="of its own"), verifying(make_bundle()):
        raise InputError("of its own")


def test_without_hashes_damage_goes_unnoticed(make_bundle: BundleMaker) -> None:
    path = make_bundle()
    flip(path / DATA)
    with verifying(path, check_hashes=False) as bundle:
        assert bundle.path == path


def test_weights_that_vanish_meanwhile_are_told(
    make_bundle: BundleMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, hash_file = make_bundle(), _hashing.hash_file

    def vanish(name: Path, **options: Any) -> FileEntry:
        name.unlink()
        return hash_file(name, **options)

    monkeypatch.setattr(verification, "hash_file", vanish)
    with pytest.raises(BundleError, match=r"model\.onnx_data cannot be read"), verifying(path):
        pass


def test_another_bundle_in_its_place_is_told_as_such(
    make_bundle: BundleMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other, hash_file = make_bundle("one"), make_bundle("other"), _hashing.hash_file
    flip(other / DATA)

    def exchange(name: Path, **options: Any) -> FileEntry:
        path.rename(path.with_name("gone"))
        other.rename(path)
        return hash_file(name, **options)

    monkeypatch.setattr(verification, "hash_file", exchange)
    with pytest.raises(BundleError, match="was replaced while it was being loaded"), verifying(path):
        pass
