#!/usr/bin/env python3
"""Ranks on hosts of their own, with latency and loss between them.

Usage: hosts_test.py LOCUS_RING
Exit code 77, with the reason, where a machine allows no namespaces.
"""

import pathlib
import sys
import tempfile

from hosts import Network, Unavailable
from launch import Job, mpirun

SKIPPED = 77
DELAY_SECONDS = 0.002
LOSS = 0.01


def check(program: str, network: Network, folder: pathlib.Path) -> int:
    """Runs the check with one rank a host; an exit code."""
    hosts = ",".join(f"{network.address(n)}:1" for n in range(len(network.names)))
    options = (
        *("--host", hosts, "--mca", "plm_rsh_agent", str(network.write_agent(folder))),
        # Only these addresses, and no shared memory between "hosts".
        *("--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "10.77.0.0/24"),
        *("--mca", "oob_tcp_if_include", "10.77.0.0/24"),
        *("-x", "LOCUS_RING_JOB", "-x", "OMPI_MCA_mpi_yield_when_idle"),
    )
    names = ["none", "shaw", "t5", "rope"]
    ranks = len(network.names)
    command = mpirun(ranks, [program, "check", *names], options)
    inside = ["ip", "netns", "exec", network.names[0], "unshare", "--uts", "sh", "-c"]
    named = f'hostname {network.names[0]}; exec "$@"'
    code, out, errors = Job([*inside, named, "sh", *command]).finish(250)
    print(out, errors, sep="")
    print(
        f"{network.carried} packets between hosts, {network.lost} lost, "
        f"each delayed by {DELAY_SECONDS * 1e3:g} ms"
    )
    if code != 0:
        return code
    if f"{ranks} ranks give what one process gives" not in out:
        print("the check did not say that the results are equal")
        return 1
    if network.lost == 0:
        print("no packet was lost: the network was not what it should be")
        return 1
    return 0


def main() -> int:
    try:
        with (
            Network(3, DELAY_SECONDS, LOSS) as network,
            tempfile.TemporaryDirectory() as folder,
        ):
            return check(sys.argv[1], network, pathlib.Path(folder))
    except Unavailable as error:
        print(f"SKIPPED: no network namespaces here: {error}")
        return SKIPPED


if __name__ == "__main__":
    sys.exit(main())
