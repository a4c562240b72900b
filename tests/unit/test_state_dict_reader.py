"""State dicts of one's own: which files, which names, what is asked, and what is refused."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from gpt_onnx.checkpoint import load_model, read_checkpoint
from gpt_onnx.checkpoint.reader import find_reader
from gpt_onnx.checkpoint.readers import ReadOptions
from gpt_onnx.errors import CheckpointError, GptOnnxError, InputError
from gpt_onnx.export import ExportOptions, config_template

FOREIGN = Path(__file__).parent / "foreign_modules.py"
WALK_THROUGH = """
n_head = 4
context_length = 40
position = "sinusoidal"
sinusoidal_style = "interleaved"
norm_order = "pre"
norm_eps = 1e-5
activation = "relu"
attention_scale = "head_size"
embedding_scale = 1.0
"""
NANO = """
n_head = 4
context_length = 40
position = "learned"
norm_order = "pre"
norm_eps = 1e-5
activation = "gelu"
attention_scale = "head_size"
embedding_scale = 1.0
"""


def _made(name: str) -> Any:
    """A module of foreign_modules.py whose every parameter matters."""
    made = runpy.run_path(str(FOREIGN))[name]().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return made


@pytest.fixture(scope="module")
def walk_through() -> Any:
    return _made("walk_through")


@pytest.fixture(scope="module")
def nano() -> Any:
    return _made("nano_gpt")


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], Path]:
    """Writes answers."""

    def write(text: str) -> Path:
        path = tmp_path / "config.toml"
        path.write_text(text)
        return path

    return write


Answers = Callable[[str], Path]


def _logits(path: Path, ids: Tensor, **options: Any) -> np.ndarray:
    model = load_model(read_checkpoint(path, **options)).double()
    with torch.no_grad():
        return np.asarray(model(ids)[0])


def _expected(module: nn.Module, ids: Tensor) -> np.ndarray:
    """Logits of the module in float64; what it makes in float32 on the way is as exact as that."""
    with torch.no_grad():
        found = module(ids)
    return np.asarray(found[0] if isinstance(found, tuple) else found)


IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 53, 58]])


def test_single_heads_and_usual_words_need_no_table(
    tmp_path: Path, walk_through: Any, config: Answers
) -> None:
    torch.save(walk_through.state_dict(), tmp_path / "gpt.pt")
    found = _logits(tmp_path / "gpt.pt", IDS, config=config(WALK_THROUGH))
    assert np.abs(found - _expected(walk_through, IDS)).max() < 2e-6


@pytest.mark.parametrize("holder", ["model", "state_dict", "model_state_dict"])
@pytest.mark.parametrize("prefix", ["", "_orig_mod.", "module.", "_orig_mod.module.", "module._orig_mod."])
def test_a_dict_that_holds_one_is_read_whatever_its_prefixes(
    tmp_path: Path, nano: Any, config: Answers, holder: str, prefix: str
) -> None:
    state = {prefix + name: value for name, value in nano.state_dict().items()}
    torch.save({holder: state, "step": 7, "config": {"lr": 0.1}}, tmp_path / "gpt.pt")
    checkpoint = read_checkpoint(tmp_path / "gpt.pt", config=config(NANO))
    assert checkpoint.config.tie_embeddings
    assert checkpoint.kind == "state dict"
    assert torch.equal(checkpoint.tensor("h.1.mlp.c_fc.weight"), nano.transformer.h[1].mlp[0].weight)


def test_a_compiled_part_has_its_prefix_in_the_middle(tmp_path: Path, nano: Any, config: Answers) -> None:
    state = {name.replace("h.0.", "h.0._orig_mod."): value for name, value in nano.state_dict().items()}
    torch.save(state, tmp_path / "gpt.pt")
    assert (
        np.abs(_logits(tmp_path / "gpt.pt", IDS, config=config(NANO))[:, -1:] - _expected(nano, IDS)).max()
        < 2e-6
    )


@pytest.mark.parametrize("form", ["safetensors", "npz", "pt"])
def test_every_form_of_file_gives_the_same(
    tmp_path: Path, walk_through: Any, config: Answers, form: str
) -> None:
    path, state = tmp_path / f"gpt.{form}", walk_through.state_dict()
    writers: dict[str, Callable[[], object]] = {
        "safetensors": lambda: save_file(state, path),
        "npz": lambda: np.savez(path, **{name: value.numpy() for name, value in state.items()}),
        "pt": lambda: torch.save(state, path),
    }
    writers[form]()
    checkpoint = read_checkpoint(path, config=config(WALK_THROUGH))
    query = torch.cat([head.query.weight for head in walk_through.blocks[1].sa.heads])
    assert torch.equal(checkpoint.tensor("h.1.attn.c_attn.weight")[:32], query)
    assert checkpoint.store.files == (path,)


def test_our_own_names_are_known(tmp_path: Path, make_gpt: Any, config: Answers) -> None:
    gpt = make_gpt(position="rotary", n_embd=32, n_head=2, activation="swiglu", norm="rmsnorm")
    save_file(gpt.state_dict(), tmp_path / "gpt.safetensors")
    answers = config(
        'n_head = 2\nposition = "rotary"\nrope_theta = 10000.0\nrope_style = "half"\ncontext_length = 64\n'
        'norm = "rmsnorm"\nnorm_order = "pre"\nnorm_eps = 1e-5\nactivation = "swiglu"\n'
        'attention_scale = "head_size"\nembedding_scale = 1.0\n'
    )
    found = _logits(tmp_path / "gpt.safetensors", IDS, config=answers)
    with torch.no_grad():
        expected = np.asarray(gpt.double()(IDS)[0])
    assert np.array_equal(found, expected)


TABLE = """
ignore = ["stack.{layer}.mask"]
[names]
"tokens" = "wte.weight"
"stack.{layer}.pre_norm.g" = "h.{layer}.ln_1.weight"
"stack.{layer}.W_in" = { to = "h.{layer}.attn.c_attn.weight", transposed = true }
"stack.{layer}.W_out" = { to = "h.{layer}.attn.c_proj.weight", transposed = true }
"stack.{layer}.post_norm.g" = "h.{layer}.ln_2.weight"
"stack.{layer}.W_1" = { to = "h.{layer}.mlp.c_fc.weight", transposed = true }
"stack.{layer}.W_2" = { to = "h.{layer}.mlp.c_proj.weight", transposed = true }
"last.g" = "ln_f.weight"
"""
OWN_CONFIG = WALK_THROUGH + 'norm = "layernorm"\n'


def _own_state() -> dict[str, Tensor]:
    """Weights as a program in JAX has them: (in, out), one table, no biases."""
    generator = torch.Generator().manual_seed(2)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) * 0.2

    state = {"tokens": noise(61, 32), "last.g": noise(32)}
    for layer in range(2):
        parts = {"pre_norm.g": noise(32), "W_in": noise(32, 96), "W_out": noise(32, 32)}
        parts |= {"post_norm.g": noise(32), "W_1": noise(32, 48), "W_2": noise(48, 32)}
        state |= {f"stack.{layer}.{name}": value for name, value in parts.items()}
        state[f"stack.{layer}.mask"] = torch.ones(40, 40).tril()
    return state


@pytest.fixture
def names(tmp_path: Path) -> Answers:
    """Writes a table."""

    def write(text: str) -> Path:
        path = tmp_path / "names.toml"
        path.write_text(text)
        return path

    return write


def test_a_table_of_names_reads_any_naming(tmp_path: Path, config: Answers, names: Answers) -> None:
    state = _own_state()
    save_file(state, tmp_path / "jax.safetensors")
    checkpoint = read_checkpoint(tmp_path / "jax.safetensors", config=config(OWN_CONFIG), names=names(TABLE))
    assert checkpoint.config.d_ff == 48
    assert torch.equal(checkpoint.tensor("h.1.mlp.c_fc.weight"), state["stack.1.W_1"].T)
    assert torch.equal(checkpoint.tensor("h.0.attn.c_attn.weight"), state["stack.0.W_in"].T)


@pytest.mark.parametrize("prefix", ["", "_orig_mod.", "module."])
def test_a_table_may_have_the_names_as_the_file_has_them(
    tmp_path: Path, config: Answers, names: Answers, prefix: str
) -> None:
    torch.save({"module." + name: value for name, value in _own_state().items()}, tmp_path / "gpt.pt")
    text = TABLE.replace('\n"', f'\n"{prefix}').replace('["', f'["{prefix}')
    assert (
        read_checkpoint(tmp_path / "gpt.pt", config=config(OWN_CONFIG), names=names(text)).config.d_ff == 48
    )


@pytest.mark.parametrize(
    ("given", "shape", "missing"),
    [("W_2", [48, 32], "c_proj"), ("W_1", [32, 48], "c_fc")],
    ids=["c_proj", "c_fc, which every GPT has"],
)
def test_an_incomplete_table_tells_both_sides(
    tmp_path: Path, config: Answers, names: Answers, given: str, shape: list[int], missing: str
) -> None:
    save_file(_own_state(), tmp_path / "jax.safetensors")
    text = TABLE.replace(f"stack.{{layer}}.{given}", "stack.{layer}.W_3")
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(tmp_path / "jax.safetensors", config=config(OWN_CONFIG), names=names(text))
    theirs, ours = f"stack.{{layer}}.{given}", f"h.{{layer}}.mlp.{missing}.weight"
    assert (
        f"by name: {theirs} {shape} (2 times) like transposed {ours}; "
        f"nothing is named as: {ours} like transposed {theirs}; "
        "no tensor has the name 'stack.{layer}.W_3' of the table; complete "
    ) in str(caught.value)


def test_a_table_needs_only_what_the_usual_words_do_not_know(
    tmp_path: Path, walk_through: Any, config: Answers, names: Answers
) -> None:
    state = {name.replace("ffwd.0", "opens"): value for name, value in walk_through.state_dict().items()}
    torch.save(state, tmp_path / "gpt.pt")
    text = "[names]\n" + "".join(
        f'"blocks.{{layer}}.opens.{kind}" = "h.{{layer}}.mlp.c_fc.{kind}"\n' for kind in ("weight", "bias")
    )
    found = _logits(tmp_path / "gpt.pt", IDS, config=config(WALK_THROUGH), names=names(text))
    assert np.abs(found - _expected(walk_through, IDS)).max() < 2e-6


def test_a_projection_that_goes_head_by_head_is_read(
    tmp_path: Path, nano: Any, config: Answers, names: Answers
) -> None:
    order = [8 * (4 * part + head) + row for head in range(4) for part in range(3) for row in range(8)]
    state = {
        name.replace("c_attn", "qkv"): value[order] if "c_attn" in name else value
        for name, value in nano.state_dict().items()
    }
    torch.save(state, tmp_path / "gpt.pt")
    text = "[names]\n" + "".join(
        f'"transformer.h.{{layer}}.attn.qkv.{kind}" = "h.{{layer}}.attn.qkv_by_head.{kind}"\n'
        for kind in ("weight", "bias")
    )
    found = _logits(tmp_path / "gpt.pt", IDS, config=config(NANO), names=names(text))
    assert np.abs(found[:, -1:] - _expected(nano, IDS)).max() < 2e-6


def test_names_that_nobody_knows_ask_for_a_table(tmp_path: Path) -> None:
    save_file(_own_state(), tmp_path / "jax.safetensors")
    with pytest.raises(InputError, match=r"(?s)not known by name:.*tokens \[61, 32\].*--names FILE\.$"):
        read_checkpoint(tmp_path / "jax.safetensors")


def test_what_tensors_cannot_say_is_asked_for(tmp_path: Path, walk_through: Any) -> None:
    torch.save(walk_through.state_dict(), tmp_path / "gpt.pt")
    with pytest.raises(InputError, match=r"does not say position .*activation .*--dry-run"):
        read_checkpoint(tmp_path / "gpt.pt")


def test_the_template_has_what_the_tensors_say(tmp_path: Path, walk_through: Any) -> None:
    path = tmp_path / "gpt.pt"
    torch.save(walk_through.state_dict(), path)
    reader = find_reader(path)
    assert reader.template is not None
    text = reader.template(path, ReadOptions())
    assert "n_embd = 32" in text
    assert "n_layer = 2" in text
    assert '# activation = "?"' in text


def test_half_a_configuration_leaves_the_other_half_to_be_asked(
    tmp_path: Path, walk_through: Any, config: Answers
) -> None:
    torch.save(walk_through.state_dict(), tmp_path / "gpt.pt")
    text = config_template(tmp_path / "gpt.pt", ExportOptions(config=config('activation = "relu"\n')))
    assert text is not None
    assert 'activation = "relu"' in text.splitlines()
    assert '# norm_order = "?"' in text
    assert config_template(tmp_path / "gpt.pt", ExportOptions(config=config(WALK_THROUGH))) is None


def test_a_table_may_only_ignore(tmp_path: Path, walk_through: Any, config: Answers, names: Answers) -> None:
    """A mask that the user has looked at, beside names that the usual words have."""
    state = {
        name: torch.ones_like(value) if "tril" in name else value
        for name, value in walk_through.state_dict().items()
    }
    torch.save({**state, "calls": torch.zeros(3)}, tmp_path / "gpt.pt")
    table = names('ignore = ["blocks.{layer}.sa.heads.{head}.tril", "calls"]')
    read = read_checkpoint(tmp_path / "gpt.pt", config=config(WALK_THROUGH), names=table)
    assert (read.numpy("ln_f.weight") == state["ln_f.weight"].numpy()).all()


def test_a_line_of_a_table_that_fits_no_tensor_is_refused(
    tmp_path: Path, walk_through: Any, config: Answers, names: Answers
) -> None:
    torch.save(walk_through.state_dict(), tmp_path / "gpt.pt")
    table = names('[names]\n"blocks.{layer}.sa.qvk.weight" = "h.{layer}.attn.qkv_by_head.weight"')
    with pytest.raises(InputError, match=r"names 'blocks.{layer}.sa.qvk.weight', which no tensor of .* is; "):
        read_checkpoint(tmp_path / "gpt.pt", config=config(WALK_THROUGH), names=table)


def test_a_mask_that_is_not_causal_is_refused(tmp_path: Path, walk_through: Any, config: Answers) -> None:
    state = {
        name: torch.ones_like(value) if "tril" in name else value
        for name, value in walk_through.state_dict().items()
    }
    torch.save(state, tmp_path / "gpt.pt")
    with pytest.raises(CheckpointError, match="tril is a mask that is not causal"):
        read_checkpoint(tmp_path / "gpt.pt", config=config(WALK_THROUGH))


def test_a_whole_module_is_refused_with_the_remedy(tmp_path: Path, nano: Any) -> None:
    torch.save({"model": nn.Linear(2, 2), "optimizer": {}}, tmp_path / "gpt.pt")
    with pytest.raises(
        CheckpointError, match=r"none under model, .*torch\.save\(model\.state_dict\(\), path\)"
    ):
        read_checkpoint(tmp_path / "gpt.pt")
    torch.save(nn.Linear(2, 2), tmp_path / "gpt.pt")
    with pytest.raises(CheckpointError, match="a dict of names and tensors was expected"):
        read_checkpoint(tmp_path / "gpt.pt")


def test_several_state_dicts_are_refused(tmp_path: Path, nano: Any) -> None:
    torch.save({"model": nano.state_dict(), "net": nano.state_dict()}, tmp_path / "gpt.pt")
    with pytest.raises(CheckpointError, match="holds tensors under model and net; save one"):
        read_checkpoint(tmp_path / "gpt.pt")


def test_integers_alone_are_no_weights(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(3, dtype=torch.int64)}, tmp_path / "gpt.pt")
    with pytest.raises(CheckpointError, match="holds no tensor of floating point"):
        read_checkpoint(tmp_path / "gpt.pt")


def test_compressed_arrays_are_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "gpt.npz", a=np.zeros((100, 100), np.float32))
    with pytest.raises(CheckpointError, match=r"a is compressed; write the file with np\.savez"):
        read_checkpoint(tmp_path / "gpt.npz")


def test_arrays_of_objects_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "gpt.npz", a=np.array([{"x": 1}], dtype=object))
    with pytest.raises(CheckpointError, match="a is of object; weights are float16, float32 or float64"):
        read_checkpoint(tmp_path / "gpt.npz")


def test_a_damaged_npz_ends_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "gpt.npz"
    np.savez(path, a=np.zeros((4, 4), np.float32), b=np.zeros(3, np.float16))
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(bytes(damaged))
        with pytest.raises(GptOnnxError):
            read_checkpoint(path)
