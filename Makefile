# make demo    export the model that ships, check it, generate text, and time it against PyTorch
# make test    run the tests
# make check   format, lint, types, packaging, generated docs
# make interop bundles in other programs, every version that docs/clients.md names; installs them in a cache
# make interop-quick   the programs of docs/clients.md in the newest versions, but for optimum's large environment
# make bench   the benchmarks
# Each makes .venv and installs into it what it needs. PYTHON names the interpreter (3.11 to 3.13).

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
DEMO := build/demo/bundle
QUICK := tests/interop/test_docs.py tests/interop/test_genai_c.py -k "not optimum"

.PHONY: demo test interop interop-quick check bench gpu docs clean

.venv/demo.stamp: pyproject.toml constraints.txt
	$(PYTHON) scripts/check_python.py
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch
	$(PIP) -e '.[cpu,export]'
	touch $@

.venv/dev.stamp: .venv/demo.stamp
	$(PIP) -e '.[cpu,export,dev]'
	touch $@

demo: .venv/demo.stamp
	$(BIN)/gpt-onnx export models/sotu --seq-len dynamic -o $(DEMO) --overwrite
	$(BIN)/gpt-onnx verify $(DEMO)
	$(BIN)/gpt-onnx generate $(DEMO) -p "My fellow citizens," -n 100 -s 1 --echo
	$(BIN)/gpt-onnx bench $(DEMO) --against models/sotu

test: .venv/dev.stamp
	$(BIN)/python -m pytest -q tests/cli tests/latency
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile --ignore=tests/cli --ignore=tests/latency --ignore=tests/interop

check: .venv/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python scripts/write_cli_docs.py --check
	$(BIN)/python scripts/check_wheel.py

interop: .venv/dev.stamp
	GPT_ONNX_INTEROP_ALL=1 $(BIN)/python -m pytest -q tests/interop

interop-quick: .venv/dev.stamp
	$(BIN)/python -m pytest -q $(QUICK)

bench: .venv/dev.stamp
	$(BIN)/python benchmarks/bench_decode.py

gpu:
	scripts/gpu_check.sh

docs: .venv/dev.stamp
	$(BIN)/python scripts/write_cli_docs.py

clean:
	rm -rf build dist .venv *.egg-info
