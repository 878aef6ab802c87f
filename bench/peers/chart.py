"""The chart: how much faster, and how much memory, one line a case.

Drawn from the JSON, so that a picture can be made again from a saved run:

    python -m peers.chart RESULTS.json CHART.png      (in bench/)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from .files import run_gnuplot, terminal_of
from .result import QUIET

PEER, LOCUS, GREY = "#d98f70", "#20507a", "#555555"
LINE = 21  # pixels a case
TOP, BOTTOM = 96, 84


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _lines(rows: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any] | None]]:
    """Titles of groups (with None) and cases, from the top."""
    lines: list[tuple[str, dict[str, Any] | None]] = []
    group = None
    for row in rows:
        if not row["shown"]:
            continue
        if row["peer_name"] != group:
            group = row["peer_name"]
            lines.append((group, None))
        training = row["direction"] != "forward"
        lines.append((row["case"] + (", training" if training else ""), row))
    return lines


def script(data: dict[str, Any], terminal: str) -> str:
    lines = _lines(data["rows"])
    count = len(lines)
    height = TOP + BOTTOM + LINE * count
    ratios, memories, whiskers, names, required = [], [], [], [], []
    labels = []
    for n, (text, row) in enumerate(lines):
        y = count - n
        if row is None:
            labels.append(
                f"set label at screen 0.01, first {y} {_quote(text)} left "
                "font ',13' textcolor '#14396b'"
            )
            continue
        names.append(f"{_quote(text)} {y}")
        ratio, need = row["ratio"], row["required"]["ratio"]
        ratios.append(f"{ratio['median']} {y}")
        whiskers.append(f"{ratio['low']} {y} {ratio['high'] - ratio['low']}")
        labels.append(
            f"set label at {max(ratio['high'], need or 1.0, 1.0) * 1.06}, {y} "
            f"{_quote(format(ratio['median'], '.1f') + ' x')} left font ',10'"
        )
        if need is not None:
            required.append(f"{need} {y}")
        floor = 1e5  # what cannot be seen on the axis is drawn at its left end
        peer, mine = (
            max(row[s]["memory"] or 0, floor) / 1e6 for s in ("peer", "locus")
        )
        if row["peer"]["memory"] is not None:
            memories.append(f"{peer} {mine} {y}")
    highest = max((float(r.split()[0]) for r in ratios), default=1.0)
    lowest = min((float(r.split()[0]) for r in ratios), default=1.0)
    machine, versions = data["machine"], data["versions"]
    head = (
        f"{machine['cpu']}, {data['threads']} threads, float32; PyTorch "
        f"{versions['torch']}, transformers {versions['transformers']}, "
        f"ONNX Runtime {versions['onnxruntime']}"
    )
    if any(row["others_busy"] > QUIET for row in data["rows"]):
        head += "; the machine was not quiet"

    def block(name: str, entries: list[str]) -> str:
        return f"${name} << EOD\n" + "\n".join(entries) + "\nEOD\n"

    bottom, top = BOTTOM / height, 1 - TOP / height
    out = (
        f"set terminal {terminal} size 1280,{height} font 'DejaVu Sans,11' "
        "noenhanced background '#ffffff'\nset output 'OUTPUT'\n"
    )
    out += block("ratios", ratios) + block("whiskers", whiskers)
    out += block("required", required) + block("memories", memories)
    out += (
        f"set yrange [0.3:{count + 0.7}]\nset border 1 lc '{GREY}'\n"
        f"set bmargin at screen {bottom}\nset tmargin at screen {top}\n"
        f"set tics textcolor '#333333' nomirror out\nset logscale x\n"
        f"set grid xtics lc '#dddddd' lw 1 lt 1\n"
        f"set label at screen 0.5, screen {1 - 26 / height} 'Locus beside its peers' "
        "center font ',19'\n"
        f"set label at screen 0.5, screen {1 - 52 / height} {_quote(head)} center "
        f"textcolor '{GREY}'\nset multiplot\n"
        "set lmargin at screen 0.37\nset rmargin at screen 0.74\n"
        f"set ytics ({', '.join(names)}) scale 0\n"
        f"set xrange [{min(0.7, lowest * 0.9)}:{highest * 1.5}]\n"
        "set xtics (0.5, 1, 2, 4, 8, 16, 32, 64, 128) format '%g x'\n"
        f"set xlabel 'time of the peer / time of Locus' textcolor '{GREY}'\n"
        f"set label at graph 0.5, screen {1 - 80 / height} 'speed' center font ',13'\n"
        + "\n".join(labels)
        + f"\nset arrow from 1, graph 0 to 1, graph 1 nohead lc '{GREY}' lw 1.4 front\n"
        "set style fill solid 1 noborder\nunset key\n"
        f"plot $ratios using (1):2:(1):1:($2-0.34):($2+0.34) with boxxyerror "
        f"fc '{LOCUS}', "
        "$whiskers using 1:2:3:(0) with vectors nohead lw 2 lc '#999999'"
        + (
            ", $required using 1:($2-0.42):(0):(0.84) with vectors nohead lw 2.4 "
            "lc '#c02020'"
            if required
            else ""
        )
        + "\nunset label\nunset arrow\n"
        "set lmargin at screen 0.79\nset rmargin at screen 0.985\n"
        "set ytics ('' 0) scale 0\nset xrange [0.1:*]\n"
        "set xtics (0.1, 1, 10, 100, 1000) format '%g'\n"
        f"set xlabel 'MB beyond inputs and outputs' textcolor '{GREY}'\n"
        f"set label at graph 0.5, screen {1 - 80 / height} "
        "'peak memory' center font ',13'\n"
    )
    if memories:
        out += (
            "plot $memories using 1:3:($2-$1):(0) with vectors nohead lw 2 "
            "lc '#cccccc', "
            f"$memories using 1:3 with points pt 7 ps 1.1 lc '{PEER}', "
            f"$memories using 2:3 with points pt 7 ps 1.1 lc '{LOCUS}'\n"
        )
    key = (
        f"set label at screen 0.01, screen {18 / height} "
        "'red tick: the least required; grey: quartiles of the rounds; dots: "
        "memory of the peer (orange) and of Locus (blue)' left "
        f"textcolor '{GREY}'\n"
    )
    return out.replace("set multiplot\n", key + "set multiplot\n") + (
        "unset multiplot\nunset output\n"
    )


def draw(data: dict[str, Any], path: Path) -> None:
    run_gnuplot(path, script(data, terminal_of(path)))


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2]))
