"""What a newcomer does with the installed package: NumPy only, no PyTorch."""

import importlib.metadata
import importlib.util
import pathlib
import sys

import numpy as np

import locus_attn as locus

assert importlib.metadata.version("locus-attn") == locus.__version__
about = importlib.metadata.metadata("locus-attn")
assert about["License-Expression"] == "Apache-2.0", about
licence = importlib.metadata.distribution("locus-attn").read_text("licenses/LICENSE")
assert licence and "Apache License" in licence, "the wheel lacks its licence"
assert importlib.metadata.distribution("locus-attn").read_text("licenses/NOTICE")
package = pathlib.Path(locus.__file__).parent
assert "site-packages" in package.parts, package
for name in ("py.typed", "_locus.pyi"):
    assert (package / name).exists(), f"the wheel lacks {name}"
assert (package / "torch").is_dir(), "the wheel lacks locus.torch"

q = k = v = np.random.default_rng(1).standard_normal((1, 8, 128, 64), np.float32)
out = locus.attention(q, k, v, locus.Rope(64, "halves"), causal=True)
assert out.shape == q.shape and np.isfinite(out).all()
assert "torch" not in sys.modules
assert importlib.util.find_spec("torch") is None, "PyTorch is here: not a clean place"
try:
    locus.torch  # noqa: B018
except ImportError as error:
    assert "PyTorch" in str(error), error
else:
    raise AssertionError("locus.torch without PyTorch must be an ImportError")

# PyPI's `locus`, an index of points and segments, is installed beside it.
from locus import kd  # noqa: E402

assert package.parent == pathlib.Path(kd.__file__).parents[1]

print("locus", locus.__version__, "from", package)
