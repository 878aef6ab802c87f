#!/usr/bin/env python3
"""A shared library exports the public API and brings what it needs along.

Usage: symbols.py PREFIX    (where a shared Locus is installed)
"""

import pathlib
import re
import subprocess
import sys

# Namespaces of the library that public headers do not have.
PRIVATE = re.compile(r"\b(kernels|analysis|stream|short_seq|N_[A-Z0-9_]+|detail)::")

prefix = pathlib.Path(sys.argv[1]).resolve()
library = next(prefix.rglob("liblocus.so"))


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


symbols = [
    line.split(maxsplit=2)[2] for line in run("nm", "-DC", "--defined-only", library)
]
foreign = [
    name
    for name in symbols
    if not re.match(r"((typeinfo|typeinfo name|vtable) for )?locus::", name)
    or PRIVATE.search(name)
]
assert not foreign, f"exported, but not of the API: {foreign[:20]}"
assert len(symbols) > 200, f"only {len(symbols)} symbols are exported"

# Highway and {fmt} are inside, or lie beside it and are found there.
for line in run("ldd", library):
    if re.search(r"lib(hwy|fmt)", line):
        assert str(prefix) in line, f"not brought along: {line.strip()}"
print(f"{len(symbols)} symbols, all of the public API")
