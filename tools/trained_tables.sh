#!/bin/sh
# Trains the tables that the explorer shows, a small model for each encoding with
# parameters, and writes web/data/trained.json.
#
#   tools/trained_tables.sh    after make build
set -eu
cd "$(dirname "$0")/.."
cmake --build --preset release --target locus_trained_tables
mkdir -p web/data
build/release/lab/locus_trained_tables > web/data/trained.json.part
mv web/data/trained.json.part web/data/trained.json
echo "locus: wrote web/data/trained.json"
