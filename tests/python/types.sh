#!/bin/sh
# pyright accepts the examples for NumPy, with the types of the package.
#
#   types.sh REPOSITORY PYTHON
set -eu
cd "$1"
tools/python.sh build/venv-publish tools/publish-requirements.txt
build/venv-publish/bin/pyright --pythonpath "$2" \
  examples/python/decode_with_cache.py examples/python/draw_encoding.py
