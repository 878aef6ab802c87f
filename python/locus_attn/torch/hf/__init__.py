"""Drop-ins for models of Hugging Face transformers."""

from .autoregister import register_when_imported
from .interface import register
from .patching import patch, unpatch

__all__ = ["patch", "register", "register_when_imported", "unpatch"]
