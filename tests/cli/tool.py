"""The locus tool under test, and what its own output says it has."""

import json
import os
import re
import subprocess
import sys

LOCUS = os.path.abspath(sys.argv[1])


def run(*args, env=None, cwd=None):
    """Exit code, standard output and standard error of one call."""
    environment = {
        k: v
        for k, v in os.environ.items()
        if k not in ("NO_COLOR", "COLUMNS", "COLORTERM")
    }
    environment.update(env or {})
    done = subprocess.run(
        [LOCUS, *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def good(*args, **more):
    """Standard output of a call that must succeed in silence."""
    code, out, err = run(*args, **more)
    assert (code, err) == (0, ""), (args, code, err)
    return out


def rest_of(terminal):
    """What a child still writes to a pseudo-terminal; closes it."""
    told = b""
    try:
        while chunk := os.read(terminal, 65536):
            told += chunk
    except OSError:
        pass  # the child has closed its side
    os.close(terminal)
    return told


NAMES = [e["name"] for e in json.loads(good("list", "--json"))["encodings"]]
# The commands, as the tool's own help lists them: two blanks, then a name.
COMMANDS = re.findall(
    r"^  ([a-z-]+) ",
    good("--help").split("Subcommands:")[1].split("Example")[0],
    re.MULTILINE,
)
PROPERTIES = [
    "order",
    "direction",
    "unique",
    "bounded",
    "length-invariant",
    "relative",
    "linear-shift",
    "continuous",
    "purpose",
    "norm-preserving",
    "decays",
    "past-length",
]
