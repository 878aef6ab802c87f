# The two commands of a newcomer: `make test` and `make compare`.
# Each installs what it needs, says what it does, and can be run again.

JOBS ?= $(shell nproc)

.PHONY: help setup build test check bench compare compare-setup compare-build timing explore wheel docs format clean

help:
	@echo "make test      set up, build, and run every test"
	@echo "make bench     set up, build, measure; results in build/bench"
	@echo "make build     set up and build: build/release/cli/locus"
	@echo "make compare   set up, build what it needs, train and compare encodings; the report"
	@echo "               in results/ has first answers after some minutes"
	@echo "               make compare ARGS=--quick for less of everything"
	@echo "make timing    the same from nothing, in a folder of its own: how long each part takes"
	@echo "make explore   set up and build the explorer page: results/explorer.html"
	@echo "make check     after an edit: build, and test without sanitizers, clang-tidy and fuzzing"
	@echo "               make check FAST=1 for the library and the text of the tree alone"
	@echo "make wheel     build the wheel of the Python package and the tool; in dist/"
	@echo "make docs      make the site of the documents; build/site/index.html"
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
	@ctest --preset release -j $(JOBS) --output-junit results.xml; \
	  status=$$?; tools/test_summary.py build/release/results.xml; exit $$status

# What a developer runs between edits; it sets nothing up. Names are of ctest.
SLOW = ^(check[.](asan|tsan|tidy)|models[.](fuzz|golden)|python[.](wheel|boundary_fuzz|torch)|(fuzz|lab|ring|web|package)[.])
FAST_TARGETS = core_test terms_test encodings_test reference_test analysis_test locus_cli docs_snippets example_attention
FAST_TESTS = ^(core|terms|encodings|reference|analysis|cli)[.]|^docs[.](commands|promises|tables|console|snippets)|^example[.](attention|readme)|^check[.](format|includes|clean_text)
check:
ifdef FAST
	@cmake --build --preset release -j $(JOBS) --target $(FAST_TARGETS) -- --quiet
	@ctest --preset release -j $(JOBS) --progress -R '$(FAST_TESTS)' -E '^core.short_calls$$'
else
	@cmake --build --preset release -j $(JOBS) -- --quiet
	@ctest --preset release -j $(JOBS) --progress -E '$(SLOW)'
endif

bench: build
	@echo "locus: measuring (a few minutes; best on a machine with nothing else to do)"
	@mkdir -p build/bench
	@build/release/cli/locus bench --save build/bench/locus.json --chart build/bench/locus.png
	@build/release/bench/locus_short --json=build/bench/short.json
	@build/release/bench/locus_bench --benchmark_out=build/bench/benchmarks.json --benchmark_out_format=json
	@echo "locus: wrote build/bench/locus.json, locus.png, short.json and benchmarks.json"

# Installs and builds what the comparison needs and no more. Resumes where an
# earlier one was interrupted.
compare: compare-build
	@echo "locus: comparing (build/compare/cli/locus-compare --help lists what can be chosen)"
	@build/compare/cli/locus-compare --continue $(ARGS)

compare-setup:
	@tools/setup.sh compare
	@tools/python.sh --torch
	@tools/corpus.sh

compare-build: compare-setup
	@echo "locus: building the lab (build/compare)"
	@cmake --preset compare > build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@cmake --build --preset compare -j $(JOBS) -- --quiet

timing:
	@tools/compare_timing.sh

wheel:
	@tools/setup.sh wheel
	@tools/wheel.sh

docs:
	@tools/setup.sh docs
	@tools/python.sh build/venv-publish tools/publish-requirements.txt
	@build/venv-publish/bin/python tools/docs_site.py

# One page that works offline: the library in the browser.
explore:
	@tools/setup.sh
	@echo "locus: building the explorer (the first time takes some minutes)"
	@web/explorer.sh build/explorer results
	@echo "locus: wrote results/explorer.html; open it in a browser"

format:
	@tools/format.sh --write

clean:
	rm -rf build
