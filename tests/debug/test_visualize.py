"""Printed shardings against JAX's, character by character."""

import sys
from typing import NamedTuple

import pytest

from shardwise import sharding as sw
from shardwise.debug.visualize import visualize_sharding

XY = {"x": 2, "y": 4}
WIDE = {"a": 1, "b": 8}
DEEP = {"p": 2, "q": 2, "r": 2}
CASES = [
    ((8, 8), XY, ("x", "y"), {}),
    ((4, 8), XY, ("x", "y"), {}),
    ((8, 8), XY, ("y", "x"), {}),
    ((8, 8), XY, ("x",), {}),
    ((8, 8), XY, (None, "y"), {}),
    ((8, 8), XY, (), {}),
    ((8, 8), XY, (("x", "y"),), {}),
    ((8, 8), XY, (None, ("y", "x")), {}),
    ((8,), XY, ("y",), {}),
    ((8,), XY, (("x", "y"),), {}),
    ((8,), XY, (), {}),
    ((1000,), XY, ("x",), {}),
    ((32,), WIDE, ("b",), {}),
    ((4, 2), XY, ("x",), {}),
    ((4, 4096), XY, ("x", "y"), {}),
    ((4096, 4), XY, ("x", "y"), {}),
    ((8, 8), DEEP, ("p", ("r", "q")), {}),
    ((8, 8), DEEP, (("p", "q"), "r"), {"scale": 2.5}),
    ((8, 8), XY, ("x", "y"), {"scale": 0.1}),
    ((8, 16), XY, (None, "y"), {"min_width": 3, "scale": 0.5}),
    ((8, 8), XY, ("x", "y"), {"max_width": 30}),
    ((8, 8), XY, (), {"max_width": 12}),
    ((8, 8), XY, ("x", "y"), {"use_color": False, "max_width": 120}),
    ((1, 8), XY, (None, "y"), {}),
    ((8, 1), XY, ("y",), {}),
]


def red_to_blue(value):
    return (1 - value, 0.2, value, 1.0)


def ours(mesh, spec):
    return sw.NamedSharding(sw.make_mesh(tuple(mesh.values()), tuple(mesh)), sw.PartitionSpec(*spec))


def theirs(jax, mesh, spec):
    types = (jax.sharding.AxisType.Auto,) * len(mesh)
    mesh = jax.make_mesh(tuple(mesh.values()), tuple(mesh), axis_types=types)
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))


@pytest.fixture(params=["file", "terminal without colors", "terminal with 256 colors"])
def output(request, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    if request.param != "file":
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "dumb" if "without" in request.param else "xterm-256color")
    return request.param


@pytest.mark.parametrize(("shape", "mesh", "spec", "options"), CASES, ids=str)
def test_prints_what_jax_prints(shape, mesh, spec, options, output, capsys):
    jax = pytest.importorskip("jax")
    if "256" in output:
        options = options | {"color_map": red_to_blue}
    jax.debug.visualize_sharding(shape, theirs(jax, mesh, spec), **options)
    expected = capsys.readouterr().out
    visualize_sharding(shape, ours(mesh, spec), **options)
    assert capsys.readouterr().out == expected
    assert ("\x1b[38;5;" in expected) == ("256" in output and options.get("use_color", True))


def test_default_colors(output, capsys):
    jax = pytest.importorskip("jax")
    jax.debug.visualize_sharding((8, 8), theirs(jax, XY, ("x", "y")))
    expected = capsys.readouterr().out
    visualize_sharding((8, 8), ours(XY, ("x", "y")))
    assert capsys.readouterr().out == expected


def test_single_device_sharding(capsys):
    visualize_sharding((4,), sw.SingleDeviceSharding(sw.devices()[3]))
    assert "│ CPU 3 │" in capsys.readouterr().out


class Chip(NamedTuple):
    id: int
    platform: str = "tpu"


class Fake:
    """A sharding that a user might write: only the map."""

    def __init__(self, *indices):
        self.indices = indices

    def devices_indices_map(self, global_shape):
        return {Chip(10 * i): index for i, index in enumerate(self.indices)}


def test_any_object_with_an_index_map(capsys):
    visualize_sharding((4,), Fake((2,), (0,), (1,), (3,)))
    assert [cell.strip() for cell in capsys.readouterr().out.splitlines()[1].split("│")[1:-1]] == [
        "TPU 10",
        "TPU 20",
        "TPU 0",
        "TPU 30",
    ]


def test_uneven_blocks(capsys):
    parts = [slice(0, 3), slice(3, 5)]
    visualize_sharding((5, 5), Fake(*[(r, c) for r in parts for c in parts]))
    rows = [line for line in capsys.readouterr().out.splitlines() if "TPU" in line]
    assert [row.split() for row in rows] == [
        ["│", "TPU", "0", "│", "TPU", "10", "│"],
        ["│", "TPU", "20", "│", "TPU", "30", "│"],
    ]


def test_blocks_that_are_no_grid():
    fake = Fake((slice(0, 2), slice(None)), (slice(2, 4), slice(0, 2)), (slice(2, 4), slice(2, 4)))
    with pytest.raises(ValueError, match="grid"):
        visualize_sharding((4, 4), fake)


@pytest.mark.parametrize("shape", [(), (2, 2, 2)])
def test_other_ranks(shape):
    jax = pytest.importorskip("jax")
    with pytest.raises(ValueError, match="1 and 2 dimensions"):
        jax.debug.visualize_sharding(shape, theirs(jax, XY, ()))
    with pytest.raises(ValueError, match="1 and 2 dimensions") as caught:
        visualize_sharding(shape, ours(XY, ()))
    assert str(shape) in str(caught.value)


def test_empty_array():
    with pytest.raises(ValueError, match="empty"):
        visualize_sharding((0, 8), ours(XY, ()))


def test_without_rich(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("rich", "rich.box"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match="pip install rich"):
        visualize_sharding((8,), ours(XY, ()))


def test_rich_is_imported_only_to_draw(shell):
    code = "import sys, shardwise.debug.visualize; print('rich' in sys.modules)"
    assert shell("-c", code).stdout == "False\n"
