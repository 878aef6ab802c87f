"""Conformance: every model of transformers on Locus, held to its own attention.

    python -m locus_attn.torch.conformance [--models M ...] [--json]

`sweep` gives a row per architecture, `examine` judges one.
"""

from .architectures import Architecture, by_path, by_type, model_types
from .judge import Finding, Row, examine
from .runner import sweep

__all__ = [
    "Architecture",
    "Finding",
    "Row",
    "by_path",
    "by_type",
    "examine",
    "model_types",
    "sweep",
]
