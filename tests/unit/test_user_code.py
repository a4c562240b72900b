"""FILE.py:NAME: what is accepted, and one sentence for what is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch import nn

from gpt_onnx.errors import ExportError, InputError
from gpt_onnx.export.user_code import (
    LeftError,
    code_file,
    load_module,
    module_code,
    names_code,
    refuse_code_without_name,
    told,
    user_code,
)

CODE = """
import dataclasses
from torch import nn
import helper_of_mine

print("hello from the file")

@dataclasses.dataclass
class Config:
    width: int = 3

ready = nn.Linear(3, 4)
number = 5

def build():
    print("building")
    import helper_of_mine
    return nn.Linear(Config().width, helper_of_mine.WIDTH)

def needs(config):
    return nn.Linear(3, 4)

def nothing():
    return None

def fails():
    raise ValueError("no weights here.\\nmore lines")

def leaves():
    raise SystemExit(2)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "helper_of_mine.py").write_text("WIDTH = 7\n")
    (tmp_path / "my_gpt.py").write_text(CODE)
    return tmp_path / "my_gpt.py"


@pytest.fixture(autouse=True)
def _forget_helper() -> None:
    sys.modules.pop("helper_of_mine", None)


def test_a_source_that_names_code_is_recognised() -> None:
    assert names_code("my_gpt.py:build")
    assert names_code("/some where/a.py:Model_2")
    for other in ("my_gpt.py", "my_gpt.py:", "my_gpt.py:a.b", "folder:name", "a.pyc:x", ".py:x", "a.py:2"):
        assert not names_code(other)


def test_a_module_and_a_function_that_returns_one(file: Path) -> None:
    assert isinstance(load_module(f"{file}:ready"), nn.Linear)
    made = load_module(f"{file}:build")
    assert isinstance(made, nn.Linear)
    assert made.out_features == 7


def test_the_search_path_is_restored(file: Path) -> None:
    before = list(sys.path)
    load_module(f"{file}:build")
    with pytest.raises(ExportError):
        load_module(f"{file}:fails")
    assert sys.path == before


def test_what_the_file_prints_stays_off_stdout(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_module(f"{file}:build")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "hello from the file\nbuilding\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("number", "my_gpt.py:number gave a int; a torch.nn.Module is needed."),
        ("nothing", "gave a NoneType; a torch.nn.Module is needed."),
        ("needs", "raised TypeError: needs() missing 1 required positional argument: 'config'; NAME must be"),
        (
            "fails",
            "raised ValueError: no weights here; NAME must be a module, or a function without arguments.",
        ),
        ("leaves", "raised SystemExit: 2; NAME must be"),
        ("Config", "gave a Config; a torch.nn.Module is needed."),
    ],
)
def test_a_name_that_gives_no_module_is_told(file: Path, name: str, message: str) -> None:
    with pytest.raises(ExportError) as told:
        load_module(f"{file}:{name}")
    assert message in str(told.value)
    assert "\n" not in str(told.value)


def test_a_missing_name_is_told(file: Path) -> None:
    with pytest.raises(
        InputError,
        match=r"my_gpt.py has no modle; name a torch.nn.Module or a function .*; my_gpt.py defines",
    ):
        load_module(f"{file}:modle")


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent.py does not exist; FILE.py:NAME needs a file"):
        load_module(f"{tmp_path / 'absent.py'}:build")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def broken(:\n", "could not be run: SyntaxError: invalid syntax"),
        ("import no_such_package_of_anybody\n", "could not be run: ModuleNotFoundError: No module named"),
        ("1 / 0\n", "could not be run: ZeroDivisionError: division by zero."),
        (
            "import sys\nsys.exit('usage: my_gpt CONFIG')\n",
            "could not be run: SystemExit: usage: my_gpt CONFIG.",
        ),
    ],
)
def test_a_file_that_cannot_be_run_is_told(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "bad.py").write_text(code)
    with pytest.raises(ExportError) as told:
        load_module(f"{tmp_path / 'bad.py'}:build")
    assert message in str(told.value)
    assert "\n" not in str(told.value)


def test_ctrl_c_in_the_file_is_no_error_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load_module(f"{tmp_path / 'slow.py'}:build")


def test_user_code_cannot_end_the_process_nor_print_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    class OfItsOwn(BaseException):
        pass

    def run(raised: BaseException) -> None:
        with user_code():
            print("chatter")
            raise raised

    for left in (SystemExit(5), OfItsOwn("enough")):
        with pytest.raises(LeftError) as caught:
            run(left)
        assert told(caught.value) == f"{type(left).__name__}: {left}"
    assert capsys.readouterr() == ("", "chatter\n" * 2)
    for passed in (KeyboardInterrupt(), ValueError("own")):
        with pytest.raises(type(passed)), user_code():
            raise passed


def test_what_a_module_raises_is_one_sentence() -> None:
    with pytest.raises(ExportError) as caught, module_code("it was looked at"):
        raise NotImplementedError("no copy.\nand more")
    assert str(caught.value) == (
        "the module's own code raised NotImplementedError: no copy while it was looked at; see that it works "
        "in PyTorch first."
    )
    with pytest.raises(InputError, match="ours"), module_code("it was looked at"):
        raise InputError("ours")


def test_a_builder_that_raises_no_exception_is_told(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text("class Odd(BaseException): pass\ndef build(): raise Odd('boo')\n")
    with pytest.raises(ExportError, match=r"odd.py:build\(\) raised Odd: boo; NAME must be a module"):
        load_module(f"{tmp_path / 'odd.py'}:build")


@pytest.mark.parametrize("source", ["my_gpt.py", "my_gpt.py:", "my_gpt.py:a.b", "absent.py"])
def test_a_file_of_code_without_a_name_in_it_is_told(source: str) -> None:
    with pytest.raises(InputError, match=r"does not say what to take out of .*; name it as FILE.py:NAME"):
        refuse_code_without_name(source)


NAMED = """
import torch.nn as nn
raise SystemExit("this was run")
class Block(nn.Module): pass
class GPT(Block): pass
class Config: pass
def build(size=3, *, deep=False): return GPT()
def make(config): return GPT()
def _hidden(): pass
model = GPT()
size = len("abc")
"""


def test_what_a_file_of_code_defines_is_listed_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(NAMED)
    with pytest.raises(InputError, match=r"; mine\.py defines Block, GPT, build, model\.$"):
        refuse_code_without_name(str(tmp_path / "mine.py"))


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("x = 1", r"mine\.py defines none: add a function"),
        ("".join(f"def f{number}(): pass\n" for number in range(11)), r"f6, f7 and 3 more\.$"),
        ("def broken(:", r"a function that returns one\.$"),
        ("(" * 5000, r"a function that returns one\.$"),
        ("def a(): pass\n#" + "x" * 1_000_000, r"a function that returns one\.$"),
    ],
)
def test_code_of_any_kind_gets_a_sentence(tmp_path: Path, code: str, ending: str) -> None:
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(InputError, match=ending):
        refuse_code_without_name(str(tmp_path / "mine.py"))


def test_only_a_file_that_is_there_is_said_to_run(file: Path) -> None:
    assert code_file(f"{file}:build") == file
    for source in (str(file), f"{file}:", f"{file.parent / 'absent.py'}:build", str(file.parent)):
        assert code_file(source) is None
    refuse_code_without_name(str(file.parent))
