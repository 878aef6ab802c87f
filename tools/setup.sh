#!/bin/sh
# Installs the Debian packages that build and tests need, if any is missing.
set -eu

packages="g++ cmake ninja-build pkg-config git ccache
  clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev
  libhwy-dev libfmt-dev libcli11-dev nlohmann-json3-dev libgtest-dev libmpfr-dev
  libbenchmark-dev libopenblas-dev valgrind
  libopenmpi-dev openmpi-bin iproute2 libssl-dev zlib1g-dev
  gnuplot-nox fonts-dejavu-core python3 python3-dev python3-venv
  chromium doxygen emscripten"
# Node is often installed by other means than a package.
command -v node > /dev/null && command -v npm > /dev/null || packages="$packages nodejs npm"

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
