#!/bin/sh
# The packages on Debian systems that have nothing else (debootstrap; root only).
#
#   debian.sh [WORK]    (build/debian unless given)
#
# PARTS in the environment chooses among these, all unless given:
#
# wheel     Debian 12 with Python 3.11 alone. No compiler, no library, no network;
#           NumPy and PyPI's `locus` are installed beside it.
# newer     The wheel for Python 3.12 and later, used by the Python that built it
#           (NEWER, python3.12 unless given), and on Debian 13 with Python 3.13 alone.
# sdist     Debian 12 with Python and g++. CMake and Ninja come from PyPI; {fmt},
#           Highway, nlohmann-json and CLI11 as CMake would fetch them, here from the
#           sources of Debian's packages.
# consumer  Debian 12 with g++ and CMake. The shared library is installed there, without
#           {fmt}, Highway or MPI, and a program is linked with it.
set -eu
repository=$(cd "$(dirname "$0")/../.." && pwd)
work=${1:-$repository/build/debian}
parts=" ${PARTS:-wheel newer sdist consumer} "
mirror=${MIRROR:-http://deb.debian.org/debian}
mkdir -p "$work"
work=$(cd "$work" && pwd)
fail() {
  echo "debian.sh: $*" >&2
  exit 1
}
[ "$(id -u)" -eq 0 ] || fail "only root can change the root folder"
"$repository/tools/setup.sh" packages debootstrap
say() { echo "locus: $(date +%H:%M:%S) $*"; }
part() { case "$parts" in *" $1 "*) ;; *) return 1 ;; esac; }
quietly() { "$@" > "$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; exit 1; }; }

# system NAME RELEASE PACKAGES: a new Debian in $work/NAME; the first one made is kept.
system() {
  kept=$work/kept-$1
  if [ ! -f "$kept/.complete" ]; then
    rm -rf "$kept"
    quietly debootstrap --variant=minbase --include="$3" "$2" "$kept" "$mirror"
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
  # With /proc, without which the loader does not know where a program lies.
  # shellcheck disable=SC2016  # the inner shell expands them
  unshare --mount --pid --fork sh -c '
    mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' "$where" \
    env -i PATH=/venv/bin:/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"
}
# lacks NAME COMMAND OR FILE...: the place is as bare as it is said to be.
lacks() {
  place=$1
  shift
  for name in "$@"; do
    ! inside "$place" sh -c "command -v $name || ls -d $name" 2> /dev/null ||
      fail "the place of the $place has $name"
  done
}
# What a newcomer does, by the commands before it: the same wherever it is installed.
use() {
  "$@" python use_wheel.py
  "$@" locus show rope > "$work/shown.txt"
  lines=$(wc -l < "$work/shown.txt")
  [ "$lines" -ge 10 ] || fail "locus show rope drew nothing"
  "$@" locus check alibi > /dev/null
  echo "$("$@" locus version | head -n 1); locus show rope draws $lines lines"
}
# use_inside NAME: in the folder that has the program.
use_inside() {
  cp "$repository/tests/python/use_wheel.py" "$work/$1"
  use inside "$1"
}
# From here, since a Debian of its own may not reach the network.
python=$repository/build/venv/bin/python
download() { "$python" -m pip download --quiet --disable-pip-version-check --dest "$@"; }
sources() {
  "$repository/tools/debian_source.sh" "$repository/build/sources" "$@"
}

if part wheel; then
  say "wheel: Debian 12, Python 3.11"
  [ -n "$(ls "$work"/dist/*-cp311-cp311-*.whl 2> /dev/null)" ] ||
    quietly "$repository/tools/wheel.sh" "$work/dist" "$python"
  system wheel bookworm python3,python3-venv
  lacks wheel g++ cc cmake gnuplot
  cp "$work"/dist/*-cp311-cp311-*.whl "$work/wheel/given"
  download "$work/wheel/given" --only-binary=:all: 'numpy>=1.22' locus
  inside wheel python3 -m venv /venv
  inside wheel pip install --quiet --no-index --find-links /given locus-attn locus
  use_inside wheel
  say "the wheel is installed and used without a compiler, beside PyPI's locus"
fi

if part newer; then
  newer=${NEWER:-python3.12}
  command -v "$newer" > /dev/null ||
    fail "$newer is not here: name a Python 3.12 or newer in NEWER, or leave newer out of PARTS"
  say "wheel: $("$newer" --version)"
  [ -n "$(ls "$work"/dist/*-cp312-abi3-*.whl 2> /dev/null)" ] ||
    quietly "$repository/tools/wheel.sh" "$work/dist" "$newer"
  rm -rf "$work/newer"
  "$newer" -m venv "$work/newer"
  "$work/newer/bin/pip" install --quiet --disable-pip-version-check \
    "$work"/dist/*-cp312-abi3-*.whl locus
  cp "$repository/tests/python/use_wheel.py" "$work/newer"
  (cd "$work/newer" && use env -i "PATH=$work/newer/bin" LC_ALL=C.UTF-8)

  say "the same wheel: Debian 13, Python 3.13"
  system trixie trixie python3,python3-venv
  lacks trixie g++ cc cmake gnuplot
  cp "$work"/dist/*-cp312-abi3-*.whl "$work/trixie/given"
  download "$work/trixie/given" --only-binary=:all: --python-version 3.13 'numpy>=1.22' locus
  inside trixie python3 -m venv /venv
  inside trixie pip install --quiet --no-index --find-links /given locus-attn locus
  use_inside trixie
  say "one wheel of the stable ABI serves both"
fi

if part consumer; then
  say "shared library: Debian 12 with g++ and CMake"
  # As package.install_shared builds it: the compiler's cache has the objects.
  quietly cmake -S "$repository" -B "$repository/build/debian-shared" -G Ninja \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DBUILD_SHARED_LIBS=ON \
    -DLOCUS_TESTS=OFF -DLOCUS_CLI=OFF -DLOCUS_BENCH=OFF
  quietly env CCACHE_BASEDIR="$repository" CCACHE_NOHASHDIR=1 \
    cmake --build "$repository/build/debian-shared" -j "$(nproc)"
  system consumer bookworm g++,cmake,make,python3
  lacks consumer /usr/include/hwy /usr/include/fmt mpicxx \
    '/usr/lib/*/libfmt.so*' '/usr/lib/*/libhwy.so*'
  quietly cmake --install "$repository/build/debian-shared" --prefix "$work/consumer/opt/locus"
  cp -r "$repository/tests/package" "$work/consumer/given"
  quietly inside consumer cmake -S /given/package/find_package -B /build \
    -DCMAKE_PREFIX_PATH=/opt/locus -DCMAKE_BUILD_TYPE=Release
  quietly inside consumer cmake --build /build
  inside consumer /build/consumer
  inside consumer python3 /given/package/symbols.py /opt/locus
  say "a program is linked with the shared library where {fmt}, Highway and MPI are not"
fi

if part sdist; then
  say "source distribution: Debian 12, Python 3.11 and g++"
  sources highway fmtlib nlohmann-json3 cli11
  rm -rf "$work/sources"
  (cd "$repository" && quietly "$python" -c '
import sys
from scikit_build_core.build import build_sdist
build_sdist(sys.argv[1])' "$work/sources")
  system sdist bookworm python3,python3-venv,python3-dev,g++
  lacks sdist cmake ninja /usr/include/hwy /usr/include/fmt
  cp "$work"/sources/*.tar.gz "$work/sdist/given"
  download "$work/sdist/given" --only-binary=:all: scikit-build-core nanobind cmake ninja \
    'numpy>=1.22' locus
  for name in highway fmtlib nlohmann-json3 cli11; do
    cp -r "$repository/build/sources/$name" "$work/sdist/given"
  done
  inside sdist python3 -m venv /venv
  define() { echo "--config-settings=cmake.define.FETCHCONTENT_SOURCE_DIR_$1=/given/$2"; }
  # shellcheck disable=SC2046  # each is a word
  quietly inside sdist pip install --quiet --no-index --find-links /given \
    $(define HWY highway) $(define FMT fmtlib) $(define NLOHMANN_JSON nlohmann-json3) \
    $(define CLI11 cli11) locus-attn locus
  use_inside sdist
  say "the source distribution is compiled with g++ alone and used"
fi
