#!/bin/sh
# Unpacks the lab's default text, the Jargon File (public domain) of Debian's
# package dict-jargon, into build/corpus. The package is not installed: it would
# bring a dictionary server along.
set -eu
cd "$(dirname "$0")/.."
[ -f build/corpus/usr/share/dictd/jargon.dict.dz ] && exit 0

sudo=""
if [ "$(id -u)" -ne 0 ]; then sudo="sudo"; fi
echo "locus: fetching the text of Debian's package dict-jargon"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch() { (cd "$work" && apt-get download -q dict-jargon) > "$work/log" 2>&1; }
fetch || { $sudo apt-get update -q > "$work/update" 2>&1 && fetch; } \
  || { cat "$work/log"; echo "locus: could not fetch dict-jargon" >&2; exit 1; }
dpkg-deb -x "$work"/dict-jargon_*.deb "$work/tree"
mkdir -p build
rm -rf build/corpus
mv "$work/tree" build/corpus
