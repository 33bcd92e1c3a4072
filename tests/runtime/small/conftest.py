"""What tests of small programs share."""

from __future__ import annotations

import pytest

from shardwise.runtime.small import kernel as runtime_small


@pytest.fixture
def made(monkeypatch):
    """The small programs that are compiled while a test runs."""
    found = []
    before = runtime_small.compiled

    def compiled(program, *args):
        found.append(program)
        return before(program, *args)

    monkeypatch.setattr(runtime_small, "compiled", compiled)
    return found
