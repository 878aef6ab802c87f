#!/bin/sh
# Builds the wheel, installs it into a new virtual environment beside NumPy
# alone, and uses it there. The sources that are distributed carry the licence.
#
#   wheel.sh REPOSITORY WORK PYTHON
set -eu
repository=$1 work=$2 python=$3
rm -rf "$work/dist" "$work/venv"
mkdir -p "$work"
# The compiler's cache makes this second build of the library short.
CMAKE_CXX_COMPILER_LAUNCHER=ccache "$python" -m pip wheel --quiet \
  --disable-pip-version-check --no-build-isolation --no-deps \
  --wheel-dir "$work/dist" --config-settings=build-dir="$work/build" "$repository"
(cd "$repository" && "$python" -c '
import sys
from scikit_build_core.build import build_sdist
build_sdist(sys.argv[1])' "$work/dist")
tar -tzf "$work"/dist/*.tar.gz | grep -q '^[^/]*/LICENSE$' ||
  { echo "the source distribution lacks LICENSE" >&2; exit 1; }
numpy=$("$python" -c 'import numpy; print(numpy.__version__)')
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
  "numpy==$numpy" "$work"/dist/*.whl
# From here, so that nothing of the repository is on the path.
cp "$repository/tests/python/use_wheel.py" "$work"
cd "$work"
"$work/venv/bin/python" "$work/use_wheel.py"
