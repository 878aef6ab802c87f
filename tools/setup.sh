#!/bin/sh
# Installs the Debian packages that are missing.
#
#   setup.sh [library|wheel|docs|compare|test]     (default test)
#   setup.sh packages PACKAGE...
#
# library: what CMake needs for the library and the tool; wheel: the Python package;
# docs: the site of the documents; compare: the lab and its page; test: everything
# that `make test` runs; packages: these.
set -eu

library="g++ cmake ninja-build pkg-config ccache libhwy-dev libfmt-dev libcli11-dev nlohmann-json3-dev"
compare="$library libssl-dev zlib1g-dev python3 python3-venv"
all="$compare git clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev
  libgtest-dev libmpfr-dev libbenchmark-dev libopenblas-dev valgrind
  libopenmpi-dev openmpi-bin iproute2 gnuplot-nox fonts-dejavu-core python3-dev chromium
  doxygen emscripten g++-aarch64-linux-gnu qemu-user g++-mingw-w64-x86-64-posix"
# Node is often installed by other means than a package.
node=""
command -v node > /dev/null && command -v npm > /dev/null || node="nodejs npm"

case "${1:-test}" in
  library) packages=$library ;;
  wheel) packages="$library python3 python3-venv python3-dev" ;;
  docs) packages="python3 python3-venv doxygen $node" ;;
  compare) packages="$compare $node" ;;
  test) packages="$all $node" ;;
  packages)
    shift
    packages="$*"
    ;;
  *)
    echo "locus: setup.sh takes library, wheel, docs, compare, test or packages, got '$1'" >&2
    exit 2
    ;;
esac

missing=""
for package in $packages; do
  status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

sudo=""
if [ "$(id -u)" -ne 0 ]; then sudo="sudo"; fi
echo "locus: installing Debian packages:$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # the lists are words
{ $sudo apt-get update -q && $sudo apt-get install -y -q --no-install-recommends $missing; } \
  > "$log" 2>&1 || { cat "$log"; echo "locus: could not install$missing" >&2; exit 1; }
