"""Registers the attention interface as soon as transformers is imported.

transformers takes seconds to import, so `import locus_attn.torch` must not do it. If
it is there already, registration happens at once; otherwise a finder waits for
`transformers.modeling_utils`, lets it load as usual, and registers afterwards.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from .interface import register

_AWAITED = "transformers.modeling_utils"


class _AfterLoading(importlib.abc.Loader):
    """The module's own loader, followed by `register`."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: Any) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        register()


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _AWAITED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _AfterLoading(spec.loader)
        return spec


def register_when_imported() -> None:
    """Now, if transformers is loaded, else when it is."""
    if _AWAITED in sys.modules:
        register()
    elif not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
