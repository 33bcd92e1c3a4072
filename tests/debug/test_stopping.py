"""Breakpoints say where they are; without a terminal they go on."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import debug, lax


def stop(x):
    y = lax.neg(x)
    debug.breakpoint()
    return y


@pytest.mark.parametrize("wrap", [lambda f: f, sw.jit], ids=["eager", "jit"])
def test_a_breakpoint_prints_the_arrays_around(wrap, capsys):
    assert float(wrap(stop)(np.float32(2))) == -2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("breakpoint at ") and lines[0].endswith("in stop") and "test_stopping.py:" in lines[0]
    assert any(line.strip().startswith("y = Array(-2.") for line in lines)


def test_a_token_comes_back(capsys):
    out = sw.jit(lambda x: debug.breakpoint(token=lax.neg(x)))(np.float32(2))
    assert float(out) == -2
    assert "breakpoint at" in capsys.readouterr().out


def test_a_debugger_in_a_terminal(monkeypatch):
    import pdb

    from shardwise.debug import stopping

    stopped = []
    monkeypatch.setattr(stopping, "_interactive", lambda: True)
    monkeypatch.setattr(pdb.Pdb, "set_trace", lambda self, frame=None: stopped.append(frame))
    stop(np.float32(2))
    sw.jit(stop)(np.float32(2))
    assert len(stopped) == 2 and stopped[0].f_code.co_name == "stop"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"backend": "web"}, ValueError),
        ({"num_frames": 3}, NotImplementedError),
        ({"ordered": True, "token": 1.0}, ValueError),
        ({"frames": 3}, TypeError),
    ],
)
def test_options(options, error):
    with pytest.raises(error):
        debug.breakpoint(**options)
