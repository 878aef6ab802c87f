#!/usr/bin/env python3
"""Locus beside what Python users have instead, in one process; see bench/README.md.

python bench/peers.py [--only REGEX] [--quick] [--json FILE] [--chart FILE]
"""

import os
import sys

# NumPy's own threads are not needed, and would spin beside what is measured.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# FlexAttention is compiled in this process, without a pool of compilers.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from peers.arguments import arguments

if __name__ == "__main__":
    given = arguments()
    from peers.main import main

    sys.exit(main(given))
