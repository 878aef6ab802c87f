#!/bin/sh
# mypy --strict and pyright accept the examples, with the types of the package, of
# NumPy and of PyTorch; pyright also tells right from wrong uses of the modules for
# PyTorch.
#
#   types.sh REPOSITORY PYTHON    (an interpreter that has NumPy and PyTorch)
set -eu
cd "$1"
tools/python.sh build/venv-publish tools/publish-requirements.txt
build/venv-publish/bin/mypy --strict --python-executable "$2" examples/python/*.py
build/venv-publish/bin/pyright --pythonpath "$2" examples/python/*.py \
  tests/python/torch/typed.py
