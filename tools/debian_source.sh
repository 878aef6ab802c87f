#!/bin/sh
# Unpacks the upstream sources of Debian packages, as another user of the system
# would get them: neither root nor lists of sources of the system are needed.
#
#   debian_source.sh FOLDER PACKAGE...    (to FOLDER/PACKAGE)
set -eu
folder=$1
shift
missing=
for package in "$@"; do
  [ -f "$folder/$package/.complete" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
apt=$(mktemp -d)
trap 'rm -rf "$apt"' EXIT
mkdir -p "$apt/etc" "$apt/state/lists/partial" "$apt/cache/archives/partial" "$apt/new"
# The same places as the system's own, for sources.
for list in /etc/apt/sources.list.d/*.sources; do
  [ ! -f "$list" ] || sed 's/^Types:.*/Types: deb-src/' "$list" > "$apt/etc/${list##*/}"
done
[ ! -f /etc/apt/sources.list ] ||
  sed 's/^deb /deb-src /' /etc/apt/sources.list > "$apt/etc/system.list"
get() {
  apt-get -q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$apt/etc" \
    -o Dir::State="$apt/state" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User= "$@" \
    > "$apt/log" 2>&1 || { cat "$apt/log" >&2; exit 1; }
}
get update
cd "$apt/new"
for package in $missing; do
  get source --download-only "$package"
  rm -rf "${folder:?}/$package"
  mkdir -p "$folder/$package"
  tar -xf "$package"_*.orig.tar.* -C "$folder/$package" --strip-components=1
  touch "$folder/$package/.complete"
done
