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
        "copy_to_host_async is_ready device_buffer"
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
    assert all(found == names[:-3] for found in seen.values())
