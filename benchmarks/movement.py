"""Moving data: from the host onto devices, between layouts, and by collectives. The arrays have 64 MB."""

from __future__ import annotations

from registry import FEW, MOST, case, placed, row_mesh, rows

FAMILY = "Transfers and collectives"
SHAPE = (4096, 4096)
BYTES = 4.0 * 4096 * 4096


def _whole(np):
    return np.ones(SHAPE, np.float32)


@case(FAMILY, copies=2 * BYTES)
def replicate(jax, jnp, np):
    """A host array onto every device."""
    x = _whole(np)
    return lambda: placed(jax, np, x)


@case(FAMILY, copies=2 * BYTES)
def split_rows(jax, jnp, np):
    """A host array, its rows split over the devices."""
    x = _whole(np)
    return lambda: placed(jax, np, x, "x")


@case(FAMILY)
def to_host(jax, jnp, np):
    """An array split over the devices to the host."""
    x = rows(jax, np, _whole(np))
    f = jax.jit(lambda x: x * 1)

    def call():
        return np.asarray(f(x))  # of a new array: the host's view of an old one is kept

    return call


@case(FAMILY)
def reshard(jax, jnp, np):
    """Split by rows, then by columns (`device_put`)."""
    x = rows(jax, np, _whole(np))
    return lambda: placed(jax, np, x, None, "x")


@case(FAMILY, copies=2 * BYTES)
def reshard_jit(jax, jnp, np):
    """Split by rows, then by columns, inside of jit, plus 1."""
    x = rows(jax, np, _whole(np))
    columns = jax.sharding.NamedSharding(row_mesh(jax, np), jax.sharding.PartitionSpec(None, "x"))
    f = jax.jit(lambda x: x + 1, out_shardings=columns)
    return lambda: f(x)


def _mapped(jax, np, body, in_spec, out_spec):
    P = jax.sharding.PartitionSpec
    mesh = row_mesh(jax, np)
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P(*in_spec), out_specs=P(*out_spec), check_vma=False))


@case(FAMILY, copies=BYTES)
def all_reduce(jax, jnp, np):
    """`psum` of parts that make up 64 MB."""
    x = rows(jax, np, _whole(np))
    f = _mapped(jax, np, lambda x: jax.lax.psum(x, "x"), ("x",), ())
    return lambda: f(x)


@case(FAMILY)
def all_gather(jax, jnp, np):
    """`all_gather` of parts that make up 64 MB."""
    x = rows(jax, np, _whole(np))
    f = _mapped(jax, np, lambda x: jax.lax.all_gather(x, "x", tiled=True), ("x",), ())
    return lambda: f(x)


@case(FAMILY)
def all_to_all(jax, jnp, np):
    """`all_to_all` of parts that make up 64 MB."""
    x = rows(jax, np, _whole(np))
    f = _mapped(jax, np, lambda x: jax.lax.all_to_all(x, "x", 1, 0, tiled=True), ("x",), (None, "x"))
    return lambda: f(x)


@case(FAMILY)
def permute(jax, jnp, np):
    """`ppermute` of parts that make up 64 MB to the next device."""
    n = jax.device_count()
    x = rows(jax, np, _whole(np))
    f = _mapped(jax, np, lambda x: jax.lax.ppermute(x, "x", [(i, (i + 1) % n) for i in range(n)]), ("x",), ("x",))
    return lambda: f(x)


@case("Memory", devices=FEW)
def replicated_parameter(jax, jnp, np):
    """64 MB of parameters on every device, and a step on 1 MB of data."""
    w = placed(jax, np, _whole(np))
    x = rows(jax, np, np.ones((64, 4096), np.float32))
    f = jax.jit(lambda w, x: (x @ w).sum())
    return lambda: f(w, x)


@case("Memory", devices=MOST[:1], copies=2 * BYTES)
def donated_update(jax, jnp, np):
    """64 MB of parameters updated in place (donated)."""
    state = [jnp.asarray(_whole(np)) * 1]
    f = jax.jit(lambda w: w - 0.1 * w, donate_argnums=0)

    def call():
        state[0] = f(state[0])
        return state[0]

    return call
