#!/bin/sh
# mypy --strict and pyright accept the examples, with the types of the package.
#
#   types.sh REPOSITORY WORK PYTHON
set -eu
cd "$1"
tools/python.sh build/venv-publish tools/publish-requirements.txt
build/venv-publish/bin/mypy --strict --python-executable "$3" \
  --cache-dir "$2/mypy" examples/python
build/venv-publish/bin/pyright --pythonpath "$3" examples/python
