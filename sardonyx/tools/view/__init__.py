"""Profiles and models as web pages: see docs/view.md."""

from sardonyx.tools.view.making import page, write_page

__all__ = ["page", "write_page"]
