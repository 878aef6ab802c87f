#!/bin/sh
# Builds the fuzz targets and runs each over the kept corpus, then on its own.
# usage: run.sh BUILD_FOLDER [SECONDS_EACH [SEED]]
# The seed is fixed by default, so that a test tells the same each time; 0 picks
# another for every run.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1
seconds=${2:-10}
seed=${3:-1}
clang=$(command -v clang++ || command -v clang++-14) || {
  echo "fuzzing needs clang++" >&2
  exit 1
}
cmake -S "$here" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$clang" >/dev/null
cmake --build "$build" --parallel 2 > "$build/build.log" || { tail -40 "$build/build.log"; exit 1; }
python3 "$here/seeds.py" "$build/seeds"
for reader in config safetensors gguf; do
  # New finds go beside the build, not into the kept corpus. 512 MB is far above
  # what a file of 64 KiB may cost; for its time see budget.h.
  mkdir -p "$build/found/$reader"
  if ! "$build/${reader}_fuzz" -seed="$seed" -max_total_time="$seconds" -max_len=65536 \
    -rss_limit_mb="${FUZZ_RSS_MB:-512}" -malloc_limit_mb=256 -timeout=10 \
    -print_final_stats=1 -dict="$here/$reader.dict" -artifact_prefix="$build/" \
    "$build/found/$reader" "$build/seeds/$reader" "$here/corpus/$reader" > "$build/$reader.log" 2>&1; then
    tail -40 "$build/$reader.log"
    exit 1
  fi
  echo "$reader: $(grep '^Done ' "$build/$reader.log")"
done
