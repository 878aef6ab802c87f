#!/bin/sh
# How long `make compare` takes from a fresh clone: each part, by the clock.
#
#   compare_timing.sh [FOLDER] [-- OPTIONS of locus compare]
#
# Works in a clone of its own in FOLDER (default: a new one under /tmp), without
# the compiler's cache. Debian packages that are installed already take no time:
# the first line says which were missing.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
folder=""
if [ $# -gt 0 ] && [ "$1" != "--" ]; then
  folder=$1
  shift
fi
[ "${1:-}" != "--" ] || shift
[ -n "$folder" ] || folder=$(mktemp -d)
now() { date +%s; }

git clone --quiet "$source" "$folder/locus"
cd "$folder/locus"
export CCACHE_DISABLE=1
start=$(now)
make compare-setup
set_up=$(now)
make compare-build
built=$(now)
log=$folder/compare.log
# What the lab says goes to the terminal and to the log.
status=0
build/compare/cli/locus-compare "$@" > "$folder/tables.txt" 2> "$log" || status=$?
done=$(now)
cat "$log" >&2
coarse=$(sed -n 's/.*first answer after \([0-9]*\) s.*/\1/p' "$log")
[ "$status" -eq 0 ] || { echo "locus: the study ended with code $status" >&2; exit "$status"; }
cat << END
part                 seconds
setup                $((set_up - start))
build                $((built - set_up))
first answer         ${coarse:--}
whole study          $((done - built))
clone to answer      $((built - start + ${coarse:-0}))
clone to the end     $((done - start))
report: $folder/locus/results/report.html
END
