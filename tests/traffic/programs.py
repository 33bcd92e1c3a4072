"""Sharded programs of many kinds, written once for any module with JAX's names; they are compiled over 8 devices, never run."""

from __future__ import annotations

from tests.traffic import language, layers, models, numerics, pieces, prefixes, solvers, steps, tables, training
from tests.traffic.table import TABLE

__all__ = [
    "TABLE",
    "language",
    "layers",
    "models",
    "numerics",
    "pieces",
    "prefixes",
    "solvers",
    "steps",
    "tables",
    "training",
]
