#!/bin/sh
# Draws docs/pictures/<name>.png for every encoding, with the built tool, with
# trained parameters where web/data/trained.json has them.
# usage: tools/pictures.sh [LOCUS]
set -eu
cd "$(dirname "$0")/.."
locus=${1:-build/release/cli/locus}
trained=web/data/trained.json
mkdir -p docs/pictures
names=$("$locus" list --json | sed -n 's/^      "name": "\(.*\)",$/\1/p')
for name in $names; do
  set -- "$name"
  ! grep -q "\"encoding\":\"$name\"" $trained || set -- "$name" --trained $trained
  "$locus" show "$@" --out "docs/pictures/$name.png"
done
echo "locus: drew $(echo "$names" | wc -w) pictures in docs/pictures, $(du -sk docs/pictures | cut -f1) kB"
