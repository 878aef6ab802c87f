# The two commands of a newcomer: `make test` and `make compare`.
# Each installs what it needs, says what it does, and can be run again.

JOBS ?= $(shell nproc)

.PHONY: help setup build test bench compare format clean

help:
	@echo "make test      set up, build, and run every test"
	@echo "make bench     set up, build, measure; results in build/bench"
	@echo "make build     set up and build: build/release/cli/locus"
	@echo "make compare   set up, build, train and compare encodings; report in results/"
	@echo "               make compare ARGS=--quick for a first look in minutes"
	@echo "make format    clang-format every source"
	@echo "make clean     remove build/"

setup:
	@tools/setup.sh
	@tools/python.sh
	@tools/corpus.sh

build: setup
	@echo "locus: building (build/release)"
	@cmake --preset release > build-configure.log 2>&1 || { cat build-configure.log; rm -f build-configure.log; exit 1; }; rm -f build-configure.log
	@cmake --build --preset release -j $(JOBS) -- --quiet

test: build
	@echo "locus: testing"
	@ctest --preset release -j $(JOBS)

bench: build
	@echo "locus: measuring (a few minutes; best on a machine with nothing else to do)"
	@mkdir -p build/bench
	@build/release/cli/locus bench --save build/bench/locus.json --chart build/bench/locus.png
	@build/release/bench/locus_short --json=build/bench/short.json
	@build/release/bench/locus_bench --benchmark_out=build/bench/benchmarks.json --benchmark_out_format=json
	@echo "locus: wrote build/bench/locus.json, locus.png, short.json and benchmarks.json"

# Continues where an earlier one was interrupted.
compare: build
	@echo "locus: comparing (build/release/cli/locus compare --help tells what can be chosen)"
	@build/release/cli/locus compare --continue $(ARGS)

format:
	@tools/format.sh --write

clean:
	rm -rf build
