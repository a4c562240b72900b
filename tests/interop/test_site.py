"""The site of a bundle in a real browser: the same tokens, every control, and what goes wrong."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpt_onnx import export_bundle, load
from gpt_onnx.bundle import open_bundle, seal
from gpt_onnx.web._serve import serving
from tests.cli.conftest import TEXT, make_bundle
from tests.interop._browser import Page, page
from tests.interop._known import NEW_TOKENS, PROMPTS, Known
from tests.interop._models import source
from tests.interop._served import serving as serving_plainly
from tests.interop._sites import (
    BROKEN,
    IDLE,
    READY_S,
    checkers,
    generated,
    ids_of,
    opened,
    said,
    set_fields,
    site_of,
    text_of,
    write,
)

Bundles = Callable[..., Known]
LOAD_S = 10  # what a loaded machine may take; docs/web.md has what one alone takes


@pytest.fixture(scope="module")
def shipped(bundles: Bundles) -> Known:
    return bundles("sinusoidal", "fp32")


@pytest.fixture(scope="module")
def site(shipped: Known, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return site_of(shipped.path, tmp_path_factory.mktemp("shipped"))


@pytest.fixture(scope="module")
def shared(site: Path) -> Iterator[Page]:
    """One page for the tests that leave it as it was."""
    with serving(site) as url, page(url) as p:
        p.wait_for(IDLE, READY_S)
        yield p


@pytest.mark.parametrize(
    ("name", "precision", "target"),
    [
        ("sinusoidal", "fp32", "cpu"),
        ("sinusoidal", "int4", "cpu"),
        ("sinusoidal", "int4", "web"),
        ("sinusoidal", "int4", "portable"),
        ("sinusoidal", "int8", "portable"),
        ("sinusoidal", "fp16", "portable"),
        ("gpt2", "fp32", "cpu"),
        ("gpt2", "fp16", "web"),
        ("llama", "fp32", "web"),
        ("llama", "fp16", "web"),
        ("llama", "fp32", "portable"),
        ("llama", "int4", "portable"),
    ],
)
def test_greedy_tokens_are_those_of_the_runtime(
    bundles: Bundles, tmp_path: Path, name: str, precision: str, target: str
) -> None:
    known = bundles(name, precision, target)
    with opened(known.path, tmp_path) as p:
        rows = [ids_of(generated(p, prompt, new_tokens=NEW_TOKENS)) for prompt in PROMPTS]
        known.check(rows)
        assert not p.errors


def test_threads_give_the_same_tokens(shared: Page, shipped: Known) -> None:
    assert shared.evaluate("crossOriginIsolated") is True
    shipped.check([ids_of(generated(shared, PROMPTS[0], new_tokens=NEW_TOKENS, threads=2))])


def test_page_writes_what_the_runtime_writes(shared: Page, shipped: Known) -> None:
    set_fields(shared, temperature=0, new_tokens=NEW_TOKENS, ignore_eos=True)
    write(shared, PROMPTS[0])
    ids = ids_of(generated(shared, PROMPTS[0], new_tokens=NEW_TOKENS))
    assert text_of(shared) == shipped.gpt.continuation(shipped.prompt_ids[0], ids)
    assert f"{len(shipped.prompt_ids[0])} + {NEW_TOKENS} tokens" in said(shared, "status")
    assert "all new tokens were written" in said(shared, "status")


@pytest.mark.parametrize(
    "changes", [{}, {"topP": 0.9}, {"minP": 0.05, "topK": 0}, {"repetitionPenalty": 1.3}]
)
def test_seed_writes_what_it_writes_in_python(
    shared: Page, shipped: Known, changes: dict[str, float]
) -> None:
    sampling = {"temperature": 0.8, "topK": 50, "topP": 1.0, "minP": 0.0, "repetitionPenalty": 1.0, **changes}
    found = ids_of(generated(shared, PROMPTS[0], new_tokens=40, seed=7, sampling=sampling))
    words = {"topK": "top_k", "topP": "top_p", "minP": "min_p", "repetitionPenalty": "repetition_penalty"}
    options = {words.get(name, name): value for name, value in sampling.items()} | {
        "top_k": int(sampling["topK"])
    }
    [completion] = shipped.gpt.generate([PROMPTS[0]], 40, seed=7, ignore_eos=True, speculate="off", **options)
    assert found == list(completion.ids)


def test_settings_begin_with_the_bundles(shared: Page, shipped: Known) -> None:
    shared.evaluate("document.getElementById('reset').click()")
    wanted = json.loads((shipped.path / "generation_config.json").read_text())
    fields = {"temperature": "temperature", "top-k": "top_k", "top-p": "top_p"}
    for field, word in fields.items():
        assert float(shared.evaluate(f"document.getElementById('{field}').value")) == wanted[word]
    assert shared.evaluate("document.getElementById('new-tokens').value") == "128"


def test_value_out_of_range_is_not_taken(shared: Page) -> None:
    set_fields(shared, top_p=2)
    shared.click("#go")
    assert shared.evaluate("document.activeElement.id") == "top-p"
    assert shared.evaluate(IDLE) is True
    shared.evaluate("document.getElementById('reset').click()")


def test_emoji_that_spans_tokens_is_never_halved(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bigram")
    with opened(bundle, tmp_path) as p:
        steps = generated(p, "ab", new_tokens=3 * len(TEXT.encode()))
        pieces = [step["text"] for step in steps]
        assert "\ufffd" not in "".join(pieces)
        assert "".join(pieces) == "cdefgh 😀日.\nab" * 3
        assert pieces.count("") >= 3 * 5  # three tokens of the emoji and two of the character wait, each time


def test_stop_text_ends_before_it(tmp_path: Path) -> None:
    with opened(make_bundle(tmp_path / "bigram"), tmp_path) as p:
        set_fields(p, temperature=0, stop_texts="no such\n.\\n")
        write(p, "a")
        assert text_of(p) == "bcdefgh 😀日"
        assert "a stop text came" in said(p, "status")


def test_end_of_text_ends_it_unless_told(tmp_path: Path) -> None:
    with opened(make_bundle(tmp_path / "bigram"), tmp_path) as p:
        set_fields(p, temperature=0, new_tokens=9)
        write(p, "~")
        assert text_of(p) == ""
        assert "the model ended the text" in said(p, "status")
        set_fields(p, ignore_eos=True)
        write(p, "~")
        assert text_of(p) == "abcdefgh"


def test_stop_button_stops_and_the_next_text_comes(shared: Page) -> None:
    set_fields(shared, new_tokens=20000)
    write(shared, PROMPTS[0], until="document.getElementById('text').textContent.length > 40")
    shared.click("#stop")
    shared.wait_for(IDLE, 20)
    assert "stopped" in said(shared, "status")
    assert shared.evaluate("document.activeElement.id") == "go"
    set_fields(shared, new_tokens=5)
    write(shared, PROMPTS[1])
    assert "+ 5 tokens" in said(shared, "status")
    shared.evaluate("document.getElementById('reset').click()")


def test_keyboard_alone_is_enough(shared: Page) -> None:
    shared.evaluate("document.querySelector('.skip').focus()")
    seen = []
    for _ in range(2):
        shared.press("Tab")
        seen.append(shared.evaluate("document.activeElement.id"))
    assert seen == ["prompt", "go"]
    set_fields(shared, new_tokens=20000, temperature=0.8)
    shared.evaluate("document.getElementById('go').focus()")
    shared.press("Enter")
    shared.wait_for("document.getElementById('text').textContent.length > 10", READY_S)
    shared.press("Escape")
    shared.wait_for(IDLE, 20)
    shared.evaluate("document.getElementById('reset').click()")


def test_screen_reader_hears_a_whole_text(shared: Page) -> None:
    set_fields(shared, new_tokens=20000)
    write(shared, PROMPTS[0], until="document.getElementById('text').textContent.length > 10")
    answer = "document.getElementById('answer')"
    assert shared.evaluate(f"[{answer}.ariaLive, {answer}.ariaBusy]") == ["polite", "true"]
    shared.click("#stop")
    shared.wait_for(IDLE, 20)
    assert shared.evaluate(f"{answer}.ariaBusy") == "false"
    shared.evaluate("document.getElementById('reset').click()")


@pytest.mark.parametrize(
    ("name", "precision"), [("sinusoidal", "fp32"), ("sinusoidal", "int4"), ("llama", "fp32")]
)
def test_self_test_agrees_with_pytorch(bundles: Bundles, tmp_path: Path, name: str, precision: str) -> None:
    known = bundles(name, precision, "cpu", check="quick")
    with opened(known.path, tmp_path) as p:
        p.click("#test")
        p.wait_for(IDLE, READY_S)
        assert said(p, "test-result").startswith("Passed: "), said(p, "test-result")


def test_self_test_fails_where_numbers_differ(bundles: Bundles, tmp_path: Path) -> None:
    import numpy as np
    from safetensors.numpy import load_file, save_file

    bundle = shutil.copytree(bundles("gpt2", "fp32", "cpu", check="quick").path, tmp_path / "changed")
    tensors = load_file(bundle / "reference.safetensors")
    name = next(name for name in tensors if name.endswith(".logits"))
    tensors[name] = tensors[name] + np.eye(*tensors[name].shape) * 1e-3
    save_file(tensors, bundle / "reference.safetensors")
    seal(bundle, open_bundle(bundle, check_hashes=False).manifest)
    with opened(bundle, tmp_path) as p:
        p.click("#test")
        p.wait_for(IDLE, READY_S)
        assert said(p, "test-result").startswith("Failed: the largest error is 1.0e-3 of ")


def test_later_visits_load_nothing_and_work_offline(site: Path, shipped: Known) -> None:
    with serving(site) as url, page(url) as p:
        p.wait_for("document.getElementById('offline').textContent.startsWith('Ready: works')", READY_S)
        p.offline()
        p.reload()
        p.wait_for(IDLE, READY_S)
        set_fields(p, temperature=0, new_tokens=10)
        write(p, PROMPTS[0])
        assert text_of(p) == shipped.gpt.continuation(shipped.prompt_ids[0], shipped.ids[0][:10])
        assert not p.errors


def test_reload_begins_anew(shared: Page) -> None:
    shared.reload()
    shared.wait_for(IDLE, READY_S)
    assert text_of(shared) == ""
    write(shared, PROMPTS[0])
    assert text_of(shared) != ""


def test_without_isolation_one_thread_works(site: Path, shipped: Known) -> None:
    with serving_plainly({"/": site}, isolated=False) as server, page(server.url + "/") as p:
        p.wait_for(IDLE, READY_S)
        assert "1 thread ·" in said(p, "facts")
        assert ids_of(generated(p, PROMPTS[0], new_tokens=8)) == shipped.ids[0][:8]


def test_large_model_is_loaded_when_the_user_says_so(site: Path, tmp_path: Path) -> None:
    changed = shutil.copytree(site, tmp_path / "changed")
    worker = (changed / "worker.js").read_text(encoding="utf-8")
    (changed / "worker.js").write_text(worker.replace("200_000_000", "1_000"), encoding="utf-8")
    with serving_plainly({"/": changed}) as server, page(server.url + "/") as p:
        p.wait_for("!document.getElementById('load').hidden", READY_S)
        assert said(p, "load") == "Load the model (23.2 MB)"
        assert "/bundle/onnx/model.onnx_data" not in server.requests
        p.click("#load")
        p.wait_for(IDLE, READY_S)


def test_half_loaded_weights_are_told(site: Path) -> None:
    cut = {"/bundle/onnx/model.onnx_data": 1000}
    with serving_plainly({"/": site}, cut=cut) as server, page(server.url + "/") as p:
        p.wait_for(BROKEN, READY_S)
        assert said(p, "problem").startswith("bundle/onnx/model.onnx_data came with ")
        assert p.evaluate("document.getElementById('go').disabled") is True


def test_damaged_weights_are_told(bundles: Bundles, tmp_path: Path) -> None:
    site = site_of(bundles("gpt2").path, tmp_path)
    data = site / "bundle/onnx/model.onnx_data"
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    with serving(site) as url, page(url) as p:
        p.wait_for(BROKEN, READY_S)
        assert said(p, "problem") == (
            "bundle/onnx/model.onnx_data is damaged: its SHA-256 is not the manifest's; publish the whole "
            "site again."
        )


def test_missing_file_is_told(bundles: Bundles, tmp_path: Path) -> None:
    site = site_of(bundles("gpt2").path, tmp_path)
    (site / "bundle/onnx/model.onnx").unlink()
    with serving(site) as url, page(url) as p:
        p.wait_for(BROKEN, READY_S)
        assert said(p, "problem").startswith(
            "bundle/onnx/model.onnx cannot be fetched: the server answers 404;"
        )


def test_bundle_without_tokenizer_works_by_ids(tmp_path: Path) -> None:
    checkpoint = source("gpt2", tmp_path / "gpt2")
    path = export_bundle(checkpoint, tmp_path / "ids", check="none", tokenizer="none").path
    gpt = load(path)
    with opened(path, tmp_path) as p:
        assert said(p, "notice") == "This bundle has no tokenizer: prompts and answers are token ids."
        set_fields(p, temperature=0, new_tokens=5, ignore_eos=True)
        write(p, "5, 6, 7")
        [made] = gpt.generate([[5, 6, 7]], 5, temperature=0, ignore_eos=True)
        assert text_of(p) == "".join(f", {token}" for token in made.ids)
        write(p, "5, x")
        assert said(p, "problem") == '"x" is no token id; write integers with commas between them.'
        write(p, "5, 999999")
        assert "ids are integers from 0 to 4095" in said(p, "problem")


def test_tokenizer_read_in_another_way_is_told(site: Path, tmp_path: Path) -> None:
    changed = shutil.copytree(site, tmp_path / "changed")
    listing = json.loads((changed / "site.json").read_text(encoding="utf-8"))
    listing["tokenizer_samples"][0][1][0] += 1
    (changed / "site.json").write_text(json.dumps(listing), encoding="utf-8")
    with serving_plainly({"/": changed}) as server, page(server.url + "/") as p:
        p.wait_for(IDLE, READY_S)
        assert 'splits "My fellow citizens' in said(p, "notice")
        assert said(p, "notice").endswith("give token ids instead.")
        assert said(p, "prompt-label").startswith("Prompt as token ids")


def test_browser_without_vectors_is_told(site: Path) -> None:
    flags = ["--js-flags=--no-enable-sse4-1 --no-enable-sse3 --no-enable-ssse3"]
    with serving(site) as url, page(url, flags=flags) as p:
        p.wait_for(f"{BROKEN} || {IDLE}", READY_S)
        if p.evaluate(IDLE):
            pytest.skip("this Chromium keeps its vectors whatever it is told")
        assert said(p, "problem").startswith("This browser has no SIMD in WebAssembly")


def test_too_long_prompt_is_told(bundles: Bundles, tmp_path: Path) -> None:
    with opened(bundles("gpt2").path, tmp_path) as p:
        write(p, "word " * 300)
        assert "and the model takes at most 256; shorten it." in said(p, "problem")
        set_fields(p, temperature=0, new_tokens=300, ignore_eos=True)
        write(p, "My fellow citizens,")
        assert said(p, "problem") == ""
        assert "the context is full" in said(p, "status")


def test_shipped_model_in_int4_answers_soon(bundles: Bundles, tmp_path: Path) -> None:
    known = bundles("sinusoidal", "int4")
    site = site_of(known.path, tmp_path)
    with serving(site) as url, page() as p:
        started = time.monotonic()
        p.goto(url)
        p.wait_for(IDLE, READY_S)
        set_fields(p, prompt=PROMPTS[0], temperature=0)
        p.click("#go")
        p.wait_for("document.getElementById('text').textContent !== ''", READY_S)
        took = time.monotonic() - started
    print(f"int4 answers after {took:.2f} s")
    assert took < LOAD_S


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_page_fits_every_width(shared: Page, tmp_path: Path, width: int, dark: bool) -> None:
    shared.look(width=width, height=900, dark=dark)
    assert shared.evaluate("document.scrollingElement.scrollWidth <= innerWidth") is True
    assert shared.screenshot(tmp_path / "page.png").stat().st_size > 10_000
    background = shared.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert background == ("rgb(22, 24, 27)" if dark else "rgb(247, 246, 243)")
    shared.look()


@pytest.mark.parametrize("dark", [False, True])
def test_rules_of_accessibility_hold(shared: Page, dark: bool) -> None:
    shared.look(dark=dark)
    shared.evaluate((checkers() / "axe-core" / "axe.min.js").read_text(encoding="utf-8") + "; 0")
    found = shared.evaluate(
        "await axe.run().then((said) => said.violations.map((v) => [v.id, v.nodes[0].html]))"
    )
    assert found == []
    shared.look()


def test_nothing_breaks_the_pages_own_policy(shared: Page) -> None:
    assert not [line for line in shared.console if "Content Security Policy" in line]
    assert not shared.errors
    assert not shared.failed
