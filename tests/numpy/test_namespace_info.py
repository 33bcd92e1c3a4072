"""What the array API standard asks of the namespace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental import enable_x64


def test_answers() -> None:
    info = jnp.__array_namespace_info__()
    assert jnp.ones(2).__array_namespace__().__array_api_version__ == jnp.__array_api_version__
    assert info.dtypes(kind=("bool", "signed integer")) == {n: np.dtype(n) for n in ("bool", "int8", "int16", "int32")}
    assert "float64" not in info.dtypes()
    with enable_x64():
        assert info.default_dtypes()["real floating"] == np.float64
        assert "complex128" in info.dtypes(kind="numeric")
    assert info.devices() == [None, *sw.devices()]
    assert (info.default_device(), info.capabilities()["boolean indexing"]) == (None, False)
    with pytest.raises(KeyError):
        info.dtypes(kind="strings")


def test_tracers_have_the_members_of_arrays_that_jaxs_have() -> None:
    """`hasattr` answers on tracers; of the methods that only values have a call raises."""
    names = (
        "__array_namespace__ mT addressable_data delete devices is_deleted tobytes unsafe_buffer_pointer "
        "on_device_size_in_bytes copy_to_host_async is_ready device_buffer sharding device block_until_ready"
    ).split()
    seen: dict[str, list[str]] = {}

    def note(kind: str) -> Any:
        def called(x: Any) -> Any:
            seen[kind] = [name for name in names if hasattr(x, name)]
            assert x.__array_namespace__() is jnp
            with pytest.raises(sw.errors.ConcretizationTypeError):
                x.devices()
            return x

        return called

    x = jnp.ones((2, 2, 2))
    sw.jit(note("jit"))(x)
    sw.vmap(note("vmap"))(x)
    sw.jvp(note("jvp"), (x,), (x,))
    assert list(seen) == ["jit", "vmap", "jvp"]
    assert all(found == names[:-6] for found in seen.values())


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("sharding", r"'sharding': .* jax\.typeof\(x\)\.sharding .*inspect_array_sharding"),
        ("device", "'device': .*inspect_array_sharding"),
        ("block_until_ready", "'block_until_ready': .* on a result, outside of"),
        ("is_ready", "'is_ready': .* on a result, outside of"),
        ("numpy", "has no attribute 'numpy'$"),
    ],
)
def test_what_a_tracer_lacks_is_told_with_a_way_out(name: str, way: str) -> None:
    with pytest.raises(AttributeError, match=way):
        sw.jit(lambda x: getattr(x, name))(jnp.ones(2))


def test_what_arrays_no_longer_have_is_told_with_what_to_use() -> None:
    x = jnp.ones(2)
    for name, use in {"device_buffer": "addressable_data", "device_buffers": "addressable_shards"}.items():
        assert not hasattr(x, name)
        with pytest.raises(AttributeError, match=f"{name} is gone from JAX; use .*{use}"):
            getattr(x, name)
