"""Every text architecture of transformers that generates: the logits of each step.

With attn_implementation="locus" they are those of eager attention, with a cache
that grows and with a static one, padded or not; or one sentence says why not.
"""

from __future__ import annotations

import pytest

transformers = pytest.importorskip("transformers")

import conformance  # noqa: E402
import tiny  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("model_type", tiny.model_types())
def test_equal_or_one_sentence(model_type, findings):
    for finding in conformance.examine(model_type, conformance.GENERATION):
        if finding.case == "build":
            return
        findings.append(finding)
        assert finding.verdict != "WRONG", finding
        conformance.assert_one_sentence(finding)
