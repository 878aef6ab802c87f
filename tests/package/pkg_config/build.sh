#!/bin/sh
# Builds and runs the consumer with what pkg-config says, and nothing else.
# usage: build.sh COMPILER CONSUMER.cc PREFIX OUTPUT
set -eu
pc=$(find "$3" -name locus.pc)
grep -qx 'License: Apache-2.0' "$pc"
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046  # flags are words
"$1" -std=c++20 "$2" $(pkg-config --cflags --static --libs locus) -o "$4"
"$4"
