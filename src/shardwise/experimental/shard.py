"""`shardwise.experimental.shard`: where the switches between automatic and explicit mode began; they behave as in JAX 0.5."""

from typing import Any as _Any

from shardwise.base.config import BEFORE as _BEFORE
from shardwise.transforms.manual import explicit as _explicit

__all__ = ["auto_axes", "explicit_axes", "reshard"]


def reshard(xs: _Any, out_shardings: _Any) -> _Any:
    """The tree `xs` with each leaf's explicit sharding changed to `out_shardings` (one, or a prefix tree), also to
    the devices of another mesh with the same axes.

    >>> mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    >>> with jax.set_mesh(mesh):
    ...     print(jax.typeof(jax.experimental.shard.reshard(jnp.arange(4), jax.P("x"))))
    ShapedArray(int32[4@x])
    """
    return _explicit.reshard_as(_BEFORE, xs, out_shardings)


def auto_axes(f: _Any = None, /, **options: _Any) -> _Any:
    """`f` with mesh axes automatic inside; `options` as for `shardwise.sharding.auto_axes`. `out_shardings` is
    another word for `out_sharding`.

    >>> mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    >>> with jax.set_mesh(mesh):
    ...     print(jax.typeof(jax.experimental.shard.auto_axes(lambda x: x * 2, out_sharding=jax.P("x"))(jnp.arange(4))))
    ShapedArray(int32[4@x])
    """
    return _explicit.auto_axes_as(_BEFORE, f, **options)


def explicit_axes(f: _Any = None, /, **options: _Any) -> _Any:
    """`f` with mesh axes explicit inside; `options` as for `shardwise.sharding.explicit_axes`. `in_shardings` is
    another word for `in_sharding`.

    >>> mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    >>> f = lambda x: (print(jax.typeof(x)), x)[1]
    >>> with jax.set_mesh(mesh):
    ...     _ = jax.jit(jax.experimental.shard.explicit_axes(f, in_sharding=jax.P("x")))(jnp.arange(4))
    ShapedArray(int32[4@x])
    """
    return _explicit.explicit_axes_as(_BEFORE, f, **options)
