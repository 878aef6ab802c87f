#!/bin/sh
# How long `make compare` takes from a fresh clone: each part, by the clock and
# in CPU seconds, which other load on the machine changes less.
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
# CPU seconds of everything that this shell has run and waited for.
cpu() {
  times > "$folder/times"
  awk -F '[ms ]+' 'NR == 2 { printf "%d", 60 * $1 + $2 + 60 * $3 + $4 }' "$folder/times"
}

git clone --quiet "$source" "$folder/locus"
cd "$folder/locus"
export CCACHE_DISABLE=1
start=$(now)
make compare-setup
set_up=$(now)
cpu > "$folder/cpu_setup"
make compare-build
built=$(now)
cpu > "$folder/cpu_build"
log=$folder/compare.log
# What the lab says goes to the terminal and to the log.
status=0
build/compare/cli/locus-compare "$@" > "$folder/tables.txt" 2> "$log" || status=$?
done=$(now)
cpu > "$folder/cpu_study"
cat "$log" >&2
coarse=$(sed -n 's/.*first answer after \([0-9]*\) s.*/\1/p' "$log")
[ "$status" -eq 0 ] || { echo "locus: the study ended with code $status" >&2; exit "$status"; }
cpu_setup=$(cat "$folder/cpu_setup")
cpu_build=$(($(cat "$folder/cpu_build") - cpu_setup))
cpu_study=$(($(cat "$folder/cpu_study") - cpu_setup - cpu_build))
cat << END
part                 seconds   CPU seconds
setup                $(printf '%7d   %11d' $((set_up - start)) "$cpu_setup")
build                $(printf '%7d   %11d' $((built - set_up)) "$cpu_build")
first answer         $(printf '%7s' "${coarse:--}")
whole study          $(printf '%7d   %11d' $((done - built)) "$cpu_study")
clone to answer      $(printf '%7d' $((built - start + ${coarse:-0})))
clone to the end     $(printf '%7d' $((done - start)))
report: $folder/locus/results/report.html
END
