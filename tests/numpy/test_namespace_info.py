"""What the array API standard asks of the namespace."""

from __future__ import annotations

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
