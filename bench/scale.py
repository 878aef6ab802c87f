#!/usr/bin/env python3
"""Measures the ring here, fits its cost model, and projects it to many machines.

    bench/scale.py build/release/cli/locus-ring [--write docs/scale.md]

Runs `locus-ring bench` by mpirun at several lengths, on 1 and 2 ranks of one
thread, and fits

    seconds = pairs / speed + tokens * per_token + steps * per_step

where pairs are those of queries and keys that a rank computes, tokens those that
pass through it and steps the blocks that come around. Prints the tables of
docs/scale.md; --write puts them there, between the marks.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

from peers.files import beside

HEADS, DIM, BYTES = 8, 64, 4
LENGTHS = (2048, 4096, 8192, 16384)
# Two floating point operations for each channel of q.k and of p.v.
FLOPS_A_PAIR = 4 * HEADS * DIM

# What a machine of the projection is taken to be: assumptions, not measurements.
CORES = 64
NETWORK_BYTES_A_SECOND = 12.5e9  # 100 Gb/s
MACHINES = (8, 32, 128, 512, 1024, 4096)
TOKENS = (1_000_000, 100_000_000)


@dataclasses.dataclass
class Row:
    """One measurement of the forward pass, causal and zigzag."""

    length: int
    ranks: int
    seconds: float
    compute: float
    alone: float
    sent: float
    peak: float

    def features(self) -> list[float]:
        """Pairs, tokens and steps of a rank."""
        return [
            self.length * (self.length + 1) / 2 / self.ranks,
            float(self.length),
            float(self.ranks),
        ]


def measure(program: str, lengths: tuple[int, ...], repeats: int) -> list[Row]:
    """Rows of 1 and 2 ranks for every length."""
    allowed = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    rows = []
    for length in lengths:
        command = [
            *("mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none"),
            *(program, "bench", "rope", "--length", str(length), "--json"),
            *("--heads", str(HEADS), "--dim", str(DIM), "--repeat", str(repeats)),
        ]
        print(f"measuring {length} tokens", file=sys.stderr)
        done = subprocess.run(
            command, env=os.environ | allowed, check=True, capture_output=True
        )
        for row in json.loads(done.stdout)["rows"]:
            if not row["ring"]:
                continue
            rows.append(
                Row(
                    length,
                    row["ranks"],
                    row["seconds"],
                    row["compute_seconds"],
                    row["messages_alone_seconds"],
                    row["bytes_sent"],
                    row["peak_bytes_a_rank"],
                )
            )
    return rows


def solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss-Jordan elimination of a small system."""
    n = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(n):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [
                    a - factor * b for a, b in zip(rows[r], rows[i], strict=True)
                ]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def least_squares(features: list[list[float]], values: list[float]) -> list[float]:
    """Coefficients >= 0 of the least relative error; what would be < 0 is left out."""
    used = list(range(len(features[0])))
    while True:
        scaled = [
            [f[n] / v for n in used] for f, v in zip(features, values, strict=True)
        ]
        normal = [[sum(s[a] * s[b] for s in scaled) for b in range(len(used))]
                  for a in range(len(used))]  # fmt: skip
        found = solve(normal, [sum(s[a] for s in scaled) for a in range(len(used))])
        if min(found) >= 0:
            out = [0.0] * len(features[0])
            for n, value in zip(used, found, strict=True):
                out[n] = value
            return out
        del used[found.index(min(found))]


@dataclasses.dataclass
class Model:
    """Seconds of one core, and bytes of one rank."""

    a_pair: float
    a_token: float
    a_step: float
    bytes_fixed: float
    bytes_a_token: float

    @staticmethod
    def fit(rows: list[Row]) -> "Model":
        time = least_squares([r.features() for r in rows], [r.seconds for r in rows])
        # Only where blocks travel is there room for a second one.
        ring = [r for r in rows if r.ranks > 1]
        memory = least_squares(
            [[1.0, r.length / r.ranks] for r in ring], [r.peak for r in ring]
        )
        return Model(*time, *memory)

    def seconds(self, length: int, ranks: int, cores: int = 1) -> list[float]:
        """Pairs, tokens passing through, steps."""
        pairs = length * (length + 1) / 2 / ranks
        return [
            self.a_pair * pairs / cores,
            self.a_token * length / cores,
            self.a_step * ranks,
        ]

    def peak(self, length: int, ranks: int) -> float:
        return self.bytes_fixed + self.bytes_a_token * length / ranks


def table(head: list[str], lines: list[list[str]]) -> str:
    """A Markdown table."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def measured_table(rows: list[Row], model: Model) -> str:
    lines = []
    for r in rows:
        says = sum(model.seconds(r.length, r.ranks))
        lines.append(
            [
                *(f"{r.length:,}", str(r.ranks), f"{r.seconds:.3f}", f"{says:.3f}"),
                *(f"{says / r.seconds:.2f}", f"{r.sent / 1e6:.1f}"),
                *(f"{r.peak / 1e6:.0f}", f"{model.peak(r.length, r.ranks) / 1e6:.0f}"),
            ]
        )
    head = ["tokens", "ranks", "seconds", "model", "model / measured", "MB moved"]
    return table([*head, "MB per rank", "model MB"], lines)


def projected_table(model: Model) -> str:
    lines = []
    for tokens in TOKENS:
        for machines in MACHINES:
            pairs, passing, steps = model.seconds(tokens, machines, CORES)
            # k and v of every other machine come in once.
            traffic = 2 * HEADS * DIM * BYTES * tokens / NETWORK_BYTES_A_SECOND
            parts = {"pairs": pairs, "passing": passing, "steps": steps}
            total = max(sum(parts.values()), traffic)
            largest = max({**parts, "traffic": traffic}.items(), key=lambda x: x[1])[0]
            lines.append(
                [
                    *(f"{tokens:,}", f"{machines:,}", f"{pairs:.3g}", f"{passing:.3g}"),
                    *(f"{steps:.3g}", f"{traffic:.3g}", f"{total:.3g}", largest),
                    f"{model.peak(tokens, machines) / 1e9:.2f}",
                ]
            )
    head = ["tokens", "machines", "pairs s", "passing s", "steps s", "traffic s"]
    return table([*head, "total s", "largest", "GB per machine"], lines)


def report(rows: list[Row], repeats: int) -> str:
    """Everything between the marks."""
    model = Model.fit(rows)
    shorter = Model.fit([r for r in rows if r.length < max(LENGTHS)])
    check = []
    for r in rows:
        if r.length == max(LENGTHS):
            says = sum(shorter.seconds(r.length, r.ranks))
            measured = "times" if check else "times the measured time"
            ranks = "1 rank" if r.ranks == 1 else f"{r.ranks} ranks"
            check.append(f"{says / r.seconds:.2f} {measured} on {ranks}")
    moved = next(r for r in rows if r.ranks == 2 and r.length == max(LENGTHS))
    bandwidth = moved.sent / moved.ranks / moved.alone / 1e9
    load = os.getloadavg()[0]
    return f"""\
Measured on {processor()}, {os.cpu_count()} cores, load {load:.1f} at the end, best of
{repeats}; RoPE, {HEADS} heads of {DIM}, float32, causal, zigzag, one thread per rank.
A load above the number of cores means that other processes used the machine too:
times are then too long and uneven, and the fit is less reliable.

{measured_table(rows, model)}

| coefficient | value |
| --- | --- |
| speed of one core | {FLOPS_A_PAIR / model.a_pair / 1e9:.1f} GFLOP/s |
| each token that passes through a rank | {model.a_token * 1e6:.3g} us |
| each step | {model.a_step * 1e3:.3g} ms |
| memory of a rank, constant part | {model.bytes_fixed / 1e6:.0f} MB |
| memory of a rank, per token that it holds | {model.bytes_a_token:,.0f} bytes |
| messages alone, between two ranks of this machine | {bandwidth:.2f} GB/s each way |

Fitted to the shorter lengths alone, the model predicts for {max(LENGTHS):,} tokens
{" and ".join(check)}.

{projected_table(model)}
"""


def processor() -> str:
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
        return re.search(r"model name\s*:\s*(.*)", text).group(1).strip()
    except (OSError, AttributeError):
        return platform.machine()


def write(path: pathlib.Path, text: str) -> None:
    """Replaces what is between the marks."""
    begin, end = "<!-- scale.py -->\n", "<!-- end -->"
    page = path.read_text()
    head, rest = page.split(begin)
    tail = rest.split(end)[1]
    with beside(path) as made:
        made.write_text(f"{head}{begin}\n{text}\n{end}{tail}")


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of the ring, and beyond.")
    parser.add_argument("program", help="locus-ring")
    parser.add_argument("--repeat", type=int, default=3, help="rounds per length")
    parser.add_argument("--write", type=pathlib.Path, help="the page to update")
    arguments = parser.parse_args()
    rows = measure(arguments.program, LENGTHS, arguments.repeat)
    text = report(rows, arguments.repeat)
    if arguments.write:
        write(arguments.write, text)
    else:
        print(text)


if __name__ == "__main__":
    main()
