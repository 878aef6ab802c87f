#!/bin/sh
# Builds the core as WebAssembly with Debian's emscripten.
#
#   build.sh OUT    writes OUT/locus_core.js and OUT/locus_core.wasm
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1
mkdir -p "$out"
command -v em++ > /dev/null || { echo "locus: em++ is missing: run tools/setup.sh" >&2; exit 1; }
# Its optimiser looks for Debian's modules of Node there.
export NODE_PATH=/usr/share/nodejs
command -v ccache > /dev/null && export EM_COMPILER_WRAPPER=ccache
[ -f "$out/build.ninja" ] || emcmake cmake -S "$here" -B "$out" -G Ninja -DCMAKE_BUILD_TYPE=Release > "$out/configure.log" 2>&1 \
  || { cat "$out/configure.log" >&2; exit 1; }
ninja -C "$out" --quiet
