"""Ufuncs of emitters begin with a draft and end with the best code: their results keep each bit."""

from __future__ import annotations

import time

import numpy as np
import pytest

from shardwise.base import config
from shardwise.ops.elementwise.transcendental import sin_p
from shardwise.runtime.loops import ufunc_of_loop, ufuncs
from shardwise.runtime.machine import llvm
from shardwise.runtime.machine.machine_code import MachineCode

if not llvm.available() or not llvm._need().compiler().drafts:
    pytest.skip("no drafts are made here", allow_module_level=True)


def test_results_stay_when_the_draft_is_replaced(tmp_path):
    emit = sin_p.emit
    assert emit is not None

    def write(w, x):
        return w.mul(emit.write(w, x), w.constant(0.3125, x.dtype))  # a text that no other test has compiled

    with config.override("shardwise_cache_dir", str(tmp_path)):
        made = ufunc_of_loop("scaled_sin", write, 1, "float32")
        draft = ufuncs._held[-1][0].owner
        assert made is not None and isinstance(draft, MachineCode) and not draft.replaced
        x = np.linspace(-99, 99, 1001).astype(np.float32)
        first = made(x)
        np.testing.assert_allclose(first, np.sin(x.astype(np.float64)) * 0.3125, rtol=0, atol=1e-6)
        end = time.monotonic() + 20
        while not draft.replaced and time.monotonic() < end:
            np.testing.assert_array_equal(made(x), first)
        assert draft.replaced
        np.testing.assert_array_equal(made(x), first)
        np.testing.assert_array_equal(made(x[::3]), first[::3])
