#!/bin/sh
# Compiles each installed header alone, twice included.
# usage: headers.sh COMPILER PREFIX
set -eu
include="$2/include"
count=0
# Headers of the ring have MPI's types.
mpi=$(pkg-config --cflags ompi 2>/dev/null | sed 's/-I/-isystem /g' || true)
for header in $(cd "$include" && find locus -name '*.h' | sort); do
  case $header in
    locus/ring*) more=$mpi ;;
    *) more= ;;
  esac
  # shellcheck disable=SC2086  # the options are words
  printf '#include <%s>\n#include <%s>\n' "$header" "$header" |
    "$1" -std=c++20 -Wall -Wextra -Wconversion -Werror -fsyntax-only \
      -I"$include" $more -x c++ - || { echo "$header does not stand alone" >&2; exit 1; }
  count=$((count + 1))
done
[ "$count" -ge 20 ] || { echo "only $count headers were installed" >&2; exit 1; }
echo "$count headers stand alone"
