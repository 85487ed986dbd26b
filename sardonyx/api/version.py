"""The package's version, where the public face looks for it."""

from sardonyx.base.version import __version__ as __version__
