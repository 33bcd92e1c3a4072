"""Types and what describes them survive pickling whole, those over devices aside; and specs that do not fit are refused."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.base.config import use_dialect
from shardwise.ir import ShapedArray
from shardwise.sharding import AbstractMesh, AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P


def _objects():
    explicit = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    mixed = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto))
    abstract = explicit.abstract_mesh
    f32 = np.dtype(np.float32)
    shardings = [
        NamedSharding(abstract, P("x", None)),
        NamedSharding(mixed, P("x", None)),
        NamedSharding(abstract, P(None, unreduced={"y"})),
    ]
    x = jax.device_put(jnp.ones((8, 4)), NamedSharding(explicit, P("x", None)))
    return [
        *shardings,
        abstract,
        mixed,
        jax.typeof(x),
        x.aval.sharding,
        *[jax.ShapeDtypeStruct((8, 4), f32, sharding=s) for s in shardings],
        jax.ShapeDtypeStruct((8, 4), f32, weak_type=True, manual_axis_type={"x"}),
        ShapedArray((8, 4), f32, True, mesh=abstract, spec=(("x",), ())),
        ShapedArray((8,), f32, vma=frozenset({"x"})),
        ShapedArray((8,), f32, mesh=abstract, unreduced=frozenset({"x"}), reduced=frozenset({"y"})),
        ShapedArray((2,), jax.random.key(0).dtype),
    ]


@pytest.mark.parametrize("dialect", ["seed", "latest"])
def test_a_pickle_keeps_everything(dialect):
    with use_dialect(dialect):
        for x in _objects():
            for again in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
                assert type(again) is type(x)
                assert again == x
                assert hash(again) == hash(x)
                assert repr(again) == repr(x)
                assert getattr(again, "sharding", None) == getattr(x, "sharding", None)


def test_structs_refuse_a_spec_of_more_dims():
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    sharding = NamedSharding(mesh, P("x", None))
    whole = jax.ShapeDtypeStruct((8, 4), np.float32, sharding=sharding)
    with use_dialect("latest"):
        for make in (
            lambda: jax.ShapeDtypeStruct((8,), np.float32, sharding=sharding),
            lambda: jax.ShapeDtypeStruct(iter((8,)), np.float32, sharding=sharding),
            lambda: jax.ShapeDtypeStruct((), np.float32, sharding=sharding),
            lambda: whole.update(shape=(8,)),
        ):
            with pytest.raises(ValueError, match="only valid for values of rank at least 2"):
                make()
    assert jax.ShapeDtypeStruct((8,), np.float32, sharding=sharding).shape == (8,)  # as JAX 0.5.3 has it
