"""The engine's logger: standard `logging`, quiet unless the application or SARDONYX_LOG asks."""

from __future__ import annotations

import logging

from sardonyx.base import knobs

#: Root of the engine's loggers. Applications attach handlers to it as to any other.
logger = logging.getLogger("sardonyx")
logger.addHandler(logging.NullHandler())


def get_logger(part: str) -> logging.Logger:
    """The logger of one part of the engine, such as `cache`."""
    return logger.getChild(part)


def set_up() -> None:
    """Apply SARDONYX_LOG: set the level and, when nothing else would show it, write to stderr."""
    level = getattr(logging, str(knobs.get("SARDONYX_LOG")).upper())
    logger.setLevel(level)
    shown = any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers)
    if level < logging.WARNING and not shown and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
