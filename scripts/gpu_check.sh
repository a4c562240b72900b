#!/bin/sh
# Checks a portable float32 bundle on a CUDA card: the same numbers, all arithmetic on the card, and the time
# beside eager PyTorch on the same card. Takes under five minutes without the installation.
#
#   scripts/gpu_check.sh [SOURCE]        SOURCE: a checkpoint; the model that ships, if none is named
#
# PYTHON names an interpreter that has the packages; without it they are installed into .venv-gpu.
set -eu
cd "$(dirname "$0")/.."

if ! command -v nvidia-smi >/dev/null 2>&1 || ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
    echo "gpu_check: there is no CUDA card here (nvidia-smi finds none); nothing was checked." >&2
    exit 2
fi
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

if [ -z "${PYTHON:-}" ]; then
    PYTHON=.venv-gpu/bin/python
    if [ ! -x "$PYTHON" ]; then
        python3 -m venv .venv-gpu
        "$PYTHON" -m pip install --quiet torch
        "$PYTHON" -m pip install --quiet -e '.[cuda,export]' 'onnxruntime-gpu[cuda,cudnn]'
    fi
fi

# The libraries of CUDA that pip installed, for a process that does not import PyTorch.
LD_LIBRARY_PATH=$("$PYTHON" -c '
import glob, site
print(":".join(path for root in site.getsitepackages() for path in sorted(glob.glob(f"{root}/nvidia/*/lib"))))
')${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

exec "$PYTHON" scripts/gpu_check.py "$@"
