#!/bin/sh
# The package on Debian systems that have nothing else (debootstrap; root only).
#
#   debian.sh [WORK]    (build/debian unless given; about 15 minutes the first time)
#
# Wheel: Debian 12 with Python alone. No compiler, no library, no network; NumPy
# and PyPI's `locus` are installed beside it.
# Source distribution: Debian 12 with Python and g++. CMake and Ninja come from
# PyPI; {fmt}, Highway, nlohmann-json and CLI11 as CMake would fetch them, here
# from the sources of Debian's packages. SDIST=0 leaves this part out.
set -eu
repository=$(cd "$(dirname "$0")/../.." && pwd)
work=${1:-$repository/build/debian}
mirror=${MIRROR:-http://deb.debian.org/debian}
mkdir -p "$work"
work=$(cd "$work" && pwd)
[ "$(id -u)" -eq 0 ] || { echo "debian.sh: only root can change the root folder" >&2; exit 1; }
"$repository/tools/setup.sh" packages debootstrap
say() { echo "locus: $(date +%H:%M:%S) $*"; }

# system NAME PACKAGES: a new Debian in $work/NAME; the first one made is kept.
system() {
  kept=$work/kept-$1
  if [ ! -f "$kept/.complete" ]; then
    rm -rf "$kept"
    debootstrap --variant=minbase --include="$2" bookworm "$kept" "$mirror" \
      > "$work/debootstrap.log" 2>&1 || { tail "$work/debootstrap.log" >&2; exit 1; }
    touch "$kept/.complete"
  fi
  rm -rf "${work:?}/$1"
  cp -a "$kept" "$work/$1"
  mkdir "$work/$1/given"
}
# inside NAME COMMAND...: without the environment of this system.
inside() {
  where=$work/$1
  shift
  chroot "$where" env -i PATH=/venv/bin:/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"
}
# What a newcomer does; the same after either installation.
use() {
  cp "$repository/tests/python/use_wheel.py" "$work/$1/given"
  inside "$1" python /given/use_wheel.py
  inside "$1" locus show rope > "$work/shown.txt"
  [ "$(wc -l < "$work/shown.txt")" -ge 10 ] || { echo "locus show rope drew nothing" >&2; exit 1; }
  inside "$1" locus check alibi > /dev/null
  inside "$1" locus version
}
# From here, since a Debian of its own may not reach the network.
python=$repository/build/venv/bin/python
download() { "$python" -m pip download --quiet --disable-pip-version-check --dest "$@"; }

say "wheel"
[ -n "$(ls "$work"/dist/*cp311*.whl 2> /dev/null)" ] ||
  "$repository/tools/wheel.sh" "$work/dist" "$python" > "$work/log" 2>&1 ||
  { cat "$work/log" >&2; exit 1; }
system wheel python3,python3-venv
if inside wheel sh -c 'command -v g++ || command -v cc || command -v cmake'; then
  echo "debian.sh: this is no place without a compiler" >&2
  exit 1
fi
cp "$work"/dist/*cp311*.whl "$work/wheel/given"
download "$work/wheel/given" --only-binary=:all: 'numpy>=1.22' locus
inside wheel python3 -m venv /venv
inside wheel pip install --quiet --no-index --find-links /given locus-attn locus
use wheel
say "the wheel is installed and used without a compiler"

[ "${SDIST:-1}" != 0 ] || exit 0
say "source distribution"
"$repository/tools/debian_source.sh" "$repository/build/sources" \
  highway fmtlib nlohmann-json3 cli11
(cd "$repository" && rm -rf "$work/sources" && "$python" -c '
import sys
from scikit_build_core.build import build_sdist
build_sdist(sys.argv[1])' "$work/sources" > "$work/log" 2>&1) || { cat "$work/log" >&2; exit 1; }
system sdist python3,python3-venv,python3-dev,g++
if inside sdist sh -c 'command -v cmake || command -v ninja || ls /usr/include/hwy /usr/include/fmt 2> /dev/null'; then
  echo "debian.sh: this place has more than a compiler" >&2
  exit 1
fi
cp "$work"/sources/*.tar.gz "$work/sdist/given"
download "$work/sdist/given" --only-binary=:all: scikit-build-core nanobind cmake ninja \
  'numpy>=1.22' locus
for name in highway fmtlib nlohmann-json3 cli11; do
  cp -r "$repository/build/sources/$name" "$work/sdist/given"
done
inside sdist python3 -m venv /venv
define() { echo "--config-settings=cmake.define.FETCHCONTENT_SOURCE_DIR_$1=/given/$2"; }
# shellcheck disable=SC2046  # each is a word
inside sdist pip install --quiet --no-index --find-links /given \
  $(define HWY highway) $(define FMT fmtlib) $(define NLOHMANN_JSON nlohmann-json3) \
  $(define CLI11 cli11) locus-attn locus > "$work/log" 2>&1 ||
  { tail -n 40 "$work/log" >&2; exit 1; }
use sdist
say "the source distribution is compiled with g++ alone and used"
