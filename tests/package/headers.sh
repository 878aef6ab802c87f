#!/bin/sh
# Compiles each installed header alone, twice included.
# usage: headers.sh COMPILER PREFIX
set -eu
include="$2/include"
count=0
for header in $(cd "$include" && find locus -name '*.h' | sort); do
  printf '#include <%s>\n#include <%s>\n' "$header" "$header" |
    "$1" -std=c++20 -Wall -Wextra -Wconversion -Werror -fsyntax-only \
      -I"$include" -x c++ - || { echo "$header does not stand alone" >&2; exit 1; }
  count=$((count + 1))
done
[ "$count" -ge 20 ] || { echo "only $count headers were installed" >&2; exit 1; }
echo "$count headers stand alone"
