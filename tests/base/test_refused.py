"""Names of parts that are not here: they can be imported, described with and tested against; their functions refuse."""

from __future__ import annotations

import dataclasses
import importlib

import pytest

from shardwise.base.gone import REFUSING
from shardwise.base.refused import Refused, refused


@pytest.mark.parametrize("path", REFUSING)
def test_a_function_refuses_by_name_and_says_the_way_out(path):
    module = importlib.import_module(f"shardwise.{path}")
    function = module.some_function
    assert isinstance(function, Refused) and function is module.some_function
    with pytest.raises(NotImplementedError, match=rf"^jax\.{path}\.some_function is not supported: ") as error:
        function(1, x=2)
    assert REFUSING[path] in str(error.value)


def test_modules_below():
    from shardwise._src.lib.mlir import ir
    from shardwise._src.lib.mlir.dialects import arith
    from shardwise.experimental.mosaic.dialects import tpu
    from shardwise.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel

    from shardwise.experimental.pallas import tpu as pltpu

    for call in (kernel.make_splash_mha, arith.constant, pltpu.make_async_copy, tpu.load):
        with pytest.raises(NotImplementedError, match="is not supported"):
            call()
    assert repr(ir.Context) == "<jax._src.lib.mlir.ir.Context, not supported>"


def test_descriptions_hold_what_they_are_given():
    from shardwise.experimental import pallas as pl
    from shardwise.experimental.pallas import tpu as pltpu

    cost = pl.CostEstimate(flops=3, transcendentals=0, bytes_accessed=8)
    assert cost.flops == 3 and cost == pl.CostEstimate(flops=3, transcendentals=0, bytes_accessed=8)
    assert cost != pl.CostEstimate(flops=4, transcendentals=0, bytes_accessed=8) and hash(cost) == hash(cost)
    spec = pl.BlockSpec((8, 128), memory_space=pltpu.MemorySpace.VMEM)
    assert spec.given == ((8, 128),) and "VMEM" in repr(spec)
    assert isinstance(spec, pl.BlockSpec) and not isinstance(spec, pl.GridSpec)
    assert pltpu.Layout.NATIVE.reduce(0).given == (0,)
    with pytest.raises(NotImplementedError, match=r"pallas\.pallas_call is not supported.*numpy and lax"):
        pl.pallas_call(lambda ref: None, grid_spec=spec)


def test_they_serve_in_annotations_and_as_bases():
    from shardwise.experimental import pallas as pl
    from shardwise.experimental.pallas import mosaic_gpu

    @dataclasses.dataclass(frozen=True)
    class Options(pl.Options):
        size: int = 3
        spec: pl.BlockSpec | None = None
        items: pl.Sequence[int] = ()

    assert Options(4).size == 4 and pl.Sequence[int] is pl.Sequence
    with pytest.raises(TypeError, match="not iterable"):
        iter(pl.Sequence)

    @mosaic_gpu.inline_mgpu(arg_types=())
    def barrier():
        return 1

    with pytest.raises(NotImplementedError, match="inline_mgpu"):
        barrier()


def test_protocols_find_nothing():
    from shardwise.experimental import pallas as pl

    assert not hasattr(pl, "__wrapped__") and not hasattr(pl.BlockSpec, "_is_protocol")
    assert refused("a.b", "why").__module__ == "a"
