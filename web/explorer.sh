#!/bin/sh
# Builds the explorer: the core as WebAssembly and the page around it, in one file.
#
#   explorer.sh BUILD OUT    writes OUT/explorer.html; BUILD keeps what is built on the way
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1
out=$2
mkdir -p "$build"
"$here/wasm/build.sh" "$build/wasm"
# Packages are installed again only when their list changes.
if ! cmp -s "$here/package-lock.json" "$build/installed.json"; then
  cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$build/"
  (cd "$build" && npm ci --loglevel=error > /dev/null)
  cp "$here/package-lock.json" "$build/installed.json"
fi
NODE_PATH="$build/node_modules" node "$here/build_explorer.mjs" "$build/wasm" "$out"
