"""A fuzzer: random programs, run in several ways that have to agree. See docs/testing.md."""

from tests.fuzz import algorithms, carries, composed, contractions, elementwise, flow, mapped, shaping

OPS_FILES = (elementwise, shaping, contractions, flow, mapped, composed, carries, algorithms)
