#!/bin/sh
# The virtual environment of the Python package's build and tests, in build/venv.
#
#   python.sh [FOLDER [LIST]]
#
# FOLDER: build/venv unless given. LIST: of packages, tools/python-requirements.txt
# unless given. Made once; made again when the list changes.
set -eu
cd "$(dirname "$0")/.."
venv=${1:-build/venv}
list=${2:-tools/python-requirements.txt}
mkdir -p "$(dirname "$venv")"
# One at a time: two runs would pull the files from under each other.
exec 9> "$venv.lock"
flock 9
if [ -f "$venv/requirements" ] && cmp -s "$list" "$venv/requirements"; then
  exit 0
fi
echo "locus: installing Python packages into $venv"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{
  python3 -m venv --clear "$venv" &&
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$list"
} > "$log" 2>&1 || {
  cat "$log"
  echo "locus: could not install the packages of $list" >&2
  exit 1
}
cp "$list" "$venv/requirements"
