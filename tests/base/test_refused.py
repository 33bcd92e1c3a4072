"""Names of parts that are not here: they can be imported, described with and tested against; their functions refuse."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from typing import Any

import pytest

from shardwise.base.gone import REFUSING
from shardwise.base.refused import RefusedName, refuse_name


@pytest.mark.parametrize("path", REFUSING)
def test_a_function_refuses_by_name_and_says_the_way_out(path):
    module = importlib.import_module(f"shardwise.{path}")
    function = module.some_function
    assert isinstance(function, RefusedName) and function is module.some_function
    with pytest.raises(NotImplementedError, match=rf"^jax\.{path}\.some_function is not supported: ") as error:
        function(1, x=2)
    assert REFUSING[path] in str(error.value)


def test_modules_below():
    from shardwise._src.lib.mlir import ir
    from shardwise._src.lib.mlir.dialects import arith
    from shardwise.experimental.mosaic.dialects import tpu
    from shardwise.experimental.pallas.ops.tpu.paged_attention import util as kernel

    from shardwise.experimental.pallas import tpu as pltpu

    for call in (kernel.run, arith.constant, pltpu.prng_seed, tpu.load):
        with pytest.raises(NotImplementedError, match="is not supported"):
            call()
    assert repr(ir.Context) == "<jax._src.lib.mlir.ir.Context, not supported>"


def test_modules_below_have_specs_and_are_not_shown():
    package = importlib.import_module("shardwise.experimental.pallas")
    before = dir(package)
    for name in ("pallas.mosaic_gpu", "pallas.ops.gpu", "mosaic.gpu.core"):
        spec = importlib.util.find_spec(f"shardwise.experimental.{name}")
        assert spec is not None and spec.name.endswith(name) and spec.submodule_search_locations == []
    assert package.some_name is package.some_name
    assert dir(package) == before and {"pallas_call", "tpu"} <= set(before) and not {"ops", "some_name"} & set(before)


def test_what_libraries_register_refuses_when_it_is_called():
    ffi = importlib.import_module("shardwise.ffi")
    assert ffi.register_ffi_target("name", ffi.pycapsule(None), platform="CUDA") is None
    with pytest.raises(NotImplementedError, match=r"jax\.ffi\.ffi_call is not supported.*pure_callback"):
        ffi.ffi_call("name", None)


def test_descriptions_hold_what_they_are_given():
    mosaic_gpu: Any = importlib.import_module("shardwise.experimental.pallas").mosaic_gpu

    layout = mosaic_gpu.Layout(3, size=8)
    assert layout.size == 8 and layout.given == (3,) and layout == mosaic_gpu.Layout(3, size=8)
    assert layout != mosaic_gpu.Layout(3, size=9) and hash(layout) == hash(layout)
    assert "mosaic_gpu.Layout(3, size=8)" in repr(layout)
    assert isinstance(layout, mosaic_gpu.Layout) and not isinstance(layout, mosaic_gpu.Tile)
    assert mosaic_gpu.Layout.NATIVE.reduce(0).given == (0,)
    with pytest.raises(NotImplementedError, match=r"mosaic_gpu\.kernel is not supported.*pallas_call"):
        mosaic_gpu.kernel(lambda ref: None)


def test_they_serve_in_annotations_and_as_bases():
    pl: Any = importlib.import_module("shardwise.experimental.pallas")
    mosaic_gpu = pl.mosaic_gpu

    @dataclasses.dataclass(frozen=True)
    class Options(pl.Options):  # type: ignore[misc]
        size: int = 3
        spec: pl.Options | None = None  # type: ignore[valid-type]
        items: pl.Sequence[int] = ()  # type: ignore[valid-type]

    assert Options(4).size == 4 and pl.Sequence[int] is pl.Sequence
    with pytest.raises(TypeError, match="not iterable"):
        iter(pl.Sequence)

    @mosaic_gpu.inline_mgpu(arg_types=())
    def barrier():
        return 1

    with pytest.raises(NotImplementedError, match="inline_mgpu"):
        barrier()


def test_protocols_find_nothing():
    pl: Any = importlib.import_module("shardwise.experimental.pallas")

    assert not hasattr(pl, "__wrapped__") and not hasattr(pl.Options, "_is_protocol")
    assert refuse_name("a.b", "why").__module__ == "a"
