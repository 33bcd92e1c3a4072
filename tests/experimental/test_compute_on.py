"""compute_on and set_xla_metadata: programs that use them run, and wrong compute types are told."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise.experimental.compute_on import compute_on
from shardwise.experimental.xla_metadata import set_xla_metadata


def test_programs_run():
    @compute_on("device_host")
    @sw.jit
    def double(x):
        return x * 2

    @sw.jit
    def function(x):
        with compute_on("gpu_stream:1"), set_xla_metadata(inlineable="false"):
            return set_xla_metadata(double(x), note="a") + 1

    np.testing.assert_array_equal(function(np.arange(3)), [1, 3, 5])


@pytest.mark.parametrize(("kind", "error"), [("host", ValueError), ("gpu_stream:x", ValueError), (3, TypeError)])
def test_wrong_compute_types(kind, error):
    with pytest.raises(error, match="compute_on"):
        compute_on(kind)


def test_noted_functions_stay_what_they_are() -> None:
    compiled = set_xla_metadata(note="a")(sw.jit(lambda x: x + 1))
    assert compiled.lower(1.0).compile()(1.0) == 2.0
