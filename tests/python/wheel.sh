#!/bin/sh
# Builds the manylinux wheel, installs it into a new virtual environment beside
# NumPy and PyPI's other library of the name locus, and uses it there. The sources
# that are distributed carry the licence.
#
#   wheel.sh REPOSITORY WORK PYTHON
set -eu
repository=$1 work=$2 python=$3
fail() {
  echo "$1" >&2
  exit 1
}
rm -rf "$work/dist" "$work/venv"
mkdir -p "$work/dist"
"$repository/tools/wheel.sh" "$work/dist" "$python"
wheel=$(echo "$work"/dist/*.whl)
case $wheel in
  *manylinux_2_*) ;;
  *) fail "$wheel is not for manylinux" ;;
esac
(cd "$repository" && "$python" -c '
import sys
from scikit_build_core.build import build_sdist
build_sdist(sys.argv[1])' "$work/dist")
for file in LICENSE NOTICE cmake/LocusDependencies.cmake; do
  tar -tzf "$work"/dist/*.tar.gz | grep -q "^[^/]*/$file\$" ||
    fail "the source distribution lacks $file"
done

numpy=$("$python" -c 'import numpy; print(numpy.__version__)')
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
  "numpy==$numpy" locus "$wheel"
# From here, so that nothing of the repository is on the path.
cp "$repository/tests/python/use_wheel.py" "$work"
cd "$work"
"$work/venv/bin/python" "$work/use_wheel.py"

# Nothing of the library is visible to other libraries of the process.
symbols=$(nm -D --defined-only "$work"/venv/lib/python*/site-packages/locus_attn/_locus*.so |
  cut -d " " -f 3)
[ "$symbols" = PyInit__locus ] || fail "the native module exports $symbols"

# The tool draws in the terminal where there is no gnuplot.
run() { env -i PATH="$work/venv/bin" LC_ALL=C.UTF-8 "$work/venv/bin/locus" "$@"; }
run list | grep -q '^rope ' || fail "locus list does not list rope"
run show rope > shown.txt || fail "locus show rope failed"
[ "$(wc -l < shown.txt)" -ge 10 ] || fail "locus show rope drew nothing"
run check alibi > /dev/null || fail "locus check alibi failed"
run version | grep -q "$("$work/venv/bin/python" -c 'import locus_attn; print(locus_attn.__version__)')" ||
  fail "locus version is not that of the package"
echo "$(basename "$wheel"): the tool draws $(wc -l < shown.txt) lines"
