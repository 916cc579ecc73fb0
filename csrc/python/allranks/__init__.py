"""Every rank, or none: a conformance and stress suite for GPU communicators, with a reference that passes it."""

from importlib import metadata

__version__ = metadata.version("allranks")
