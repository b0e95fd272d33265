#!/usr/bin/env bash
# All GPU tests and GPU benchmarks, on a machine with 1 to 8 GPUs; writes gpu-report.md. What it runs is in gpu.py.
#
#     make gpu                                  benchmarks/gpu.sh --only decode train
#     benchmarks/gpu.sh --list                  what would run here, and what is missing for the rest
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
[ -x "$python" ] || python=$(command -v python3)
PYTHONPATH=. exec "$python" benchmarks/gpu.py "$@"
