#!/bin/sh
# Takes the picture of a report for the README, in a real browser: from its top
# to the end of its first figure.
# usage: tools/report_picture.sh [REPORT.html [PICTURE.png [light|dark]]]
set -eu
cd "$(dirname "$0")/.."
report=${1:-results/report.html}
picture=${2:-docs/images/report.png}
if [ ! -f "$report" ]; then
  echo "locus: there is no $report: run make compare first" >&2
  exit 2
fi
mkdir -p "$(dirname "$picture")"
LOCUS_CHROMIUM=$(command -v chromium) \
  LOCUS_WEB_MODULES=${LOCUS_WEB_MODULES:-build/release/web/node_modules} \
  node tests/web/screenshot.mjs "$report" "$picture" "${3:-light}"
echo "locus: wrote $picture"
