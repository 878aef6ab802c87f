"""Makes the helpers beside the tests importable, and what the tests share."""

import os
import sys
import tempfile
from pathlib import Path

import pytest
import torch

# torch.compile keeps its graphs between runs, those of other versions of the
# package, with other arguments, among them.
_GRAPHS = tempfile.TemporaryDirectory(prefix="locus_graphs_")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = _GRAPHS.name

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)


@pytest.fixture
def softmax_in_the_type_of_the_model(monkeypatch):
    """BLOOM and LLaMA take their softmax in float32 even if all else is float64."""
    softmax = torch.nn.functional.softmax

    def unrounded(x, dim=None, dtype=None):
        keep = x.dtype == torch.float64 and dtype == torch.float32
        return softmax(x, dim=dim, dtype=None if keep else dtype)

    monkeypatch.setattr(torch.nn.functional, "softmax", unrounded)
