"""The timing of popular models: its page, and the memory that it measures."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("transformers")

from locus_attn.torch.conformance import timing

pytestmark = pytest.mark.filterwarnings("ignore")
_MIB = 2.0**20


@pytest.mark.parametrize("training", [False, True])
def test_never_more_memory_than_sdpa(training):
    model = timing.MODELS[0]
    sdpa, locus = (timing.peak(model, 1024, n, training) for n in ("sdpa", "locus"))
    assert sdpa > 20 * _MIB
    assert locus < sdpa + 2 * _MIB


def test_rows_are_kept_and_written(capsys, tmp_path):
    rows, page = tmp_path / "rows.jsonl", tmp_path / "page.md"
    options = ["--models", "bert", "--length", "32", "--rounds", "1", "--json"]
    options += ["--resume", str(rows), "--write", str(page)]
    assert timing.main(options) == 0
    told = json.loads(capsys.readouterr().out)["rows"]
    assert [row["training"] for row in told] == [False, True]
    for row in told:
        assert row["seconds"].keys() == row["memory"].keys()
        assert all(s > 0 for s in row["seconds"].values())
        assert all(m > 0 for m in row["memory"].values())
    # Nothing is left to measure: the rows are those of the file.
    assert timing.main(options) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == told
    lines = [x for x in page.read_text().splitlines() if x.startswith("| BERT base")]
    assert [line.split("|")[3].strip() for line in lines] == ["inference", "training"]
