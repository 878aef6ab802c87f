#!/bin/sh
# Builds a sanitizer preset in its own folder and runs tests there.
#
#   sanitize.sh REPOSITORY BUILD PRESET TARGETS TESTS
#
# TARGETS: what to build, by words. TESTS: a regular expression of ctest.
# The folder is kept, so that a second run builds only what has changed.
set -eu
repository=$1 build=$2 preset=$3 targets=$4 tests=$5
cd "$repository"
# -O1 and line tables: half the time to build, and reports still name lines.
cmake --preset "$preset" -B "$build" \
  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -gline-tables-only" > "$build.log" 2>&1 ||
  { cat "$build.log"; exit 1; }
# shellcheck disable=SC2086  # the targets are words
cmake --build "$build" -j "$(nproc)" --target $targets > "$build.log" 2>&1 ||
  { cat "$build.log"; exit 1; }
ctest --test-dir "$build" -j "$(nproc)" -R "$tests" --no-tests=error \
  --output-on-failure --progress > "$build.log" 2>&1 ||
  { cat "$build.log"; exit 1; }
tail -n 3 "$build.log"
