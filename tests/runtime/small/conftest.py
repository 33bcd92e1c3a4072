"""What tests of small programs share."""

from __future__ import annotations

import importlib

import pytest

from shardwise.runtime.small import kernel as runtime_small


@pytest.fixture
def made(monkeypatch):
    """The small programs that are compiled while a test runs."""
    # Imported later, it would keep what this test puts in the function's place.
    importlib.import_module("shardwise.runtime.small.pieces")
    found = []
    before = runtime_small.compile_program

    def compiled(program, *args, **options):
        found.append(program)
        return before(program, *args, **options)

    monkeypatch.setattr(runtime_small, "compile_program", compiled)
    return found
