#!/bin/sh
# The virtual environment in build/venv: what the Python package is built and
# tested with, and the PyTorch whose libtorch the lab links.
#
#   python.sh [FOLDER [LIST]]            every package of the list
#   python.sh --torch [FOLDER [LIST]]    PyTorch alone, which is all that the lab needs
#
# FOLDER: build/venv unless given. LIST: tools/python-requirements.txt unless given.
# Does nothing while the environment has what is asked for. PyTorch alone is added
# to when the rest is asked for; another version of anything begins anew.
set -eu
cd "$(dirname "$0")/.."
only_torch=""
if [ "${1:-}" = "--torch" ]; then
  only_torch=yes
  shift
fi
venv=${1:-build/venv}
list=${2:-tools/python-requirements.txt}
wanted=$(mktemp)
log=$(mktemp)
trap 'rm -f "$wanted" "$log"' EXIT
if [ -n "$only_torch" ]; then
  grep '^torch==' "$list" > "$wanted"
else
  cat "$list" > "$wanted"
fi
have=$venv/requirements
mkdir -p "$(dirname "$venv")"
# One at a time: two runs would pull the files from under each other.
exec 9> "$venv.lock"
flock 9
clear=--clear
if [ -f "$have" ]; then
  grep -Fxvq -f "$have" "$wanted" || exit 0
  grep -Fxvq -f "$list" "$have" || clear=
fi
echo "locus: installing Python packages into $venv"
# shellcheck disable=SC2086  # one option or none
{
  rm -f "$have" &&
    python3 -m venv $clear "$venv" &&
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$wanted"
} > "$log" 2>&1 || {
  cat "$log"
  echo "locus: could not install the packages of $list" >&2
  exit 1
}
cp "$wanted" "$have"
