#!/bin/sh
# Checks that every C++ source is clang-formatted; --write formats it.
set -eu
cd "$(dirname "$0")/.."
mode="--dry-run -Werror"
[ "${1:-}" = "--write" ] && mode="-i"
# shellcheck disable=SC2086
git ls-files --cached --others --exclude-standard '*.cc' '*.h' | xargs clang-format-14 $mode
