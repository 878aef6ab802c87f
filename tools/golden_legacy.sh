#!/bin/sh
# golden.py with transformers 4.35.2, the last release with Transformer-XL and
# BERT's relative keys: legacy.json.
#
#   golden_legacy.sh write|check [FOLDER]
#
# FOLDER (default build/transformers-4.35.2) gets the three packages that must be
# of their time; everything else is that of $PYTHON (default build/venv's).
set -eu
cd "$(dirname "$0")/.."
case ${1:-} in
  write | check) ;;
  *)
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
packages=${2:-build/transformers-4.35.2}
python=${PYTHON:-build/venv/bin/python}
if [ ! -d "$packages" ]; then
  rm -rf "$packages.part"
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps \
    --target "$packages.part" transformers==4.35.2 tokenizers==0.15.2 \
    huggingface-hub==0.19.4
  mv "$packages.part" "$packages"
fi
PYTHONPATH=$packages exec "$python" -B tools/golden.py "$1"
