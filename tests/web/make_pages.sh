#!/bin/sh
# Makes the pages that the tests open, from made-up results.
#
#   make_pages.sh NODE LOCUS_COMPARE OUT
set -eu
for kind in full partial empty live hostile hostile_all; do
  folder="$3/$kind"
  mkdir -p "$folder"
  "$1" "$(dirname "$0")/made_up.mjs" "$folder/results.json" "$kind"
  "$2" --plot-only --out "$folder" > "$folder/terminal.txt"
done
