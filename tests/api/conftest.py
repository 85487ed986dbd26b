"""Fixtures of tests of the face."""

import pytest

_HOLDERS = ("providers", "module", "devices", "load")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a GPU, also where there is one."""
    for holder in _HOLDERS:
        monkeypatch.setattr(f"sardonyx.api.{holder}.cuda_is_missing", lambda number=0: "no driver")
