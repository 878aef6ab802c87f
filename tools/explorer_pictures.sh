#!/bin/sh
# Takes the pictures of the explorer for docs/images.
#
#   tools/explorer_pictures.sh    after make explore
set -eu
cd "$(dirname "$0")/.."
LOCUS_CHROMIUM=$(command -v chromium) LOCUS_WEB_MODULES=build/explorer/node_modules \
  LOCUS_EXPLORER=results/explorer.html \
  node tests/web/explorer_pictures.mjs results/explorer.html docs/images
