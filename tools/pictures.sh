#!/bin/sh
# Draws docs/pictures/<name>.png for every encoding, with the built tool.
# usage: tools/pictures.sh [LOCUS]
set -eu
cd "$(dirname "$0")/.."
locus=${1:-build/release/cli/locus}
mkdir -p docs/pictures
names=$("$locus" list --json | sed -n 's/^ *"name": "\(.*\)",$/\1/p')
for name in $names; do
  "$locus" show "$name" --out "docs/pictures/$name.png"
done
echo "locus: drew $(echo "$names" | wc -w) pictures in docs/pictures, $(du -sk docs/pictures | cut -f1) kB"
