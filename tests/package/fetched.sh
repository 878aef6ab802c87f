#!/bin/sh
# Configures and builds with third-party libraries from their sources.
#
#   fetched.sh REPOSITORY WORK COMPILER
#
# The sources are those of Debian's packages, whose upstream part is the pinned
# release. JSON and CLI11 are headers only: those of the system do.
set -eu
repository=$1 work=$2 compiler=$3
rm -rf "$work/build"
mkdir -p "$work"
"$repository/tools/debian_source.sh" "$work" highway fmtlib

# A source folder each for the two that are headers.
for name in nlohmann_json:nlohmann CLI11:CLI; do
  folder=$work/${name%%:*}
  mkdir -p "$folder"
  cat > "$folder/CMakeLists.txt" << END
add_library(${name%%:*} INTERFACE)
add_library(${name%%:*}::${name%%:*} ALIAS ${name%%:*})
target_include_directories(${name%%:*} INTERFACE /usr/include)
END
done

cmake -S "$repository" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
  -DLOCUS_TESTS=OFF -DLOCUS_BENCH=OFF -DFETCHCONTENT_FULLY_DISCONNECTED=ON \
  -DFETCHCONTENT_SOURCE_DIR_FMT="$work/fmtlib" \
  -DFETCHCONTENT_SOURCE_DIR_HWY="$work/highway" \
  -DFETCHCONTENT_SOURCE_DIR_NLOHMANN_JSON="$work/nlohmann_json" \
  -DFETCHCONTENT_SOURCE_DIR_CLI11="$work/CLI11" > "$work/log" 2>&1 ||
  { cat "$work/log"; exit 1; }
for name in fmt hwy nlohmann_json CLI11; do
  grep -q "Locus: $name of sources" "$work/log" ||
    { echo "$name was not built from its sources" >&2; exit 1; }
done
cmake --build "$work/build" -j 2 --target fmt hwy locus_core locus_terms > "$work/log" 2>&1 ||
  { cat "$work/log"; exit 1; }
# They become part of the library, which then needs nothing of them installed.
ninja -C "$work/build" -t query liblocus.a > "$work/log"
for object in format.cc.o targets.cc.o; do
  grep -q "$object" "$work/log" || { echo "liblocus.a lacks $object" >&2; exit 1; }
done
echo "fmt and Highway were built from their sources into liblocus.a"
