#!/bin/sh
# Cross-compiles the library and its tests, and runs the tests.
#
#   cross.sh aarch64 [CTEST ARGUMENTS...]   NEON; under qemu-user
#   cross.sh windows [CTEST ARGUMENTS...]   MinGW-w64; under Wine where there is one
#
# For example: cross.sh aarch64 -R KvCache. Without arguments every test of the
# kernels, encodings, terms, reference, analysis, models and core runs, which
# takes long under emulation. TARGETS and BUILD in the environment choose what is
# built (by words) and where.
#
# Only the compiler is for the other machine: {fmt}, Highway and GoogleTest are
# built from the sources of Debian's packages, so that no packages of another
# architecture are installed here.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
platform=$1
shift
build=${BUILD:-build/$platform}
sources=$PWD/build/sources
jobs=${JOBS:-$(nproc)}
case "$platform" in
  aarch64) packages="g++-aarch64-linux-gnu qemu-user" ;;
  windows) packages="g++-mingw-w64-x86-64-posix" ;;
  *)
    echo "locus: cross.sh takes aarch64 or windows, got '$platform'" >&2
    exit 2
    ;;
esac
# shellcheck disable=SC2086  # the packages are words
tools/setup.sh packages libgtest-dev nlohmann-json3-dev cmake ninja-build ccache $packages
tools/debian_source.sh "$sources" highway fmtlib
# Headers alone, in a folder without the other headers of this machine.
mkdir -p "$sources/json/include"
ln -sfn /usr/include/nlohmann "$sources/json/include/nlohmann"
cat > "$sources/json/CMakeLists.txt" << 'END'
add_library(nlohmann_json INTERFACE)
add_library(nlohmann_json::nlohmann_json ALIAS nlohmann_json)
target_include_directories(nlohmann_json SYSTEM INTERFACE
  ${CMAKE_CURRENT_SOURCE_DIR}/include)
END

log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() { "$@" > "$log" 2>&1 || { cat "$log" >&2; exit 1; }; }
# As in the presets: another checkout finds what this one has compiled.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=locale,time_macros
echo "locus: building for $platform ($build)"
quietly cmake --preset "$platform" -B "$build" \
  -DLOCUS_GOOGLETEST=/usr/src/googletest \
  -DFETCHCONTENT_SOURCE_DIR_FMT="$sources/fmtlib" \
  -DFETCHCONTENT_SOURCE_DIR_HWY="$sources/highway" \
  -DFETCHCONTENT_SOURCE_DIR_NLOHMANN_JSON="$sources/json"
# shellcheck disable=SC2086  # the targets are words
quietly cmake --build "$build" -j "$jobs" --target ${TARGETS:-all}
[ -z "${TARGETS-}" ] || [ $# -gt 0 ] || exit 0  # some targets alone
if [ "$platform" = windows ] && ! grep -q '^LOCUS_WINE:.*wine' "$build/CMakeCache.txt"; then
  echo "locus: built for $platform; there is no Wine here that would run the tests"
  exit 0
fi
quietly ctest --test-dir "$build" -j "$jobs" --no-tests=error --output-on-failure "$@"
echo "locus: $platform: $(grep 'tests passed' "$log")"
