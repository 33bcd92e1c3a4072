"""Python's operators and the methods of arrays: values, dtypes and weak types as JAX has them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, cast

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from tests.numpy.core_record import check_on_arrays, use
from tests.numpy.face import cases, check_error

CASES = """
v + w
m + v
v + f
f + v
k + v
i + k
i + f
i / k
k / i
v / k
m - n
f - m
i - 1
m * 2
2 * m
u * 2
u + 300
b * 2
b + b
b & bm
i & 3
i | n
i ^ j
3 & i
i << 2
n >> 1
2 << i
~n
~b
-m
+m
abs(n)
m // 0.5
n // 3
7 // (i + 1)
m % 0.5
n % 3
divmod(n, 3)
divmod(7, i + 1)
m ** 2
m ** 3
m ** -1
2 ** i
i ** 2
w ** f
w ** i
2.0 ** v
m @ v
v @ w
m @ m.T
t @ v
v @ sq[:, :0].repeat(2, 0)
v == w
i == 3
v != w
i < j
v <= w
m > 0
0 > m
m >= v
n >= 0
3 <= i
round(m)
round(m, 2)
c + 1
c * 2.0
1j * v
h + 1
bf * f
np.float32(2) * v
v + np.ones(8)
np.ones(8) + v
v[None] + m
(v + 1) * w - m / 2
i == np.int8(3)
b == True
m.T
t.mT
t.T
m.real
c.imag
c.real
m.reshape(2, 16)
m.reshape((8, 4))
m.reshape(-1)
m.reshape(2, -1)
m.ravel()
m.flatten()
m.transpose()
t.transpose(1, 0, 2)
t.transpose((2, 0, 1))
t.swapaxes(0, 1)
m[:1].squeeze()
m.astype(int)
m.copy()
m.view("int32")
m.byteswap()
i.byteswap()
u.byteswap()
c.byteswap()
m.view("int16")
i.view("uint8")
c.view("float32")
m.view("complex64")
b.view("uint8")
v.clip(0, 1)
v.round(1)
v.dot(w)
m.take(i % 4, axis=0)
v.repeat(2)
v.sort()
v.argsort()
i.searchsorted(3)
c.conj()
b.all()
len(m) + v
sum(m)
m.at[0].set(1)
v.nonzero()  # static
v.compress(b)  # static
m.diagonal(1)
m.max()
m.min(0)
m.prod(1)
m.cumsum(0)
m.argmin()
m.argmax(1)
m.sum()
m.mean(0)
m.std()
n.max(axis=1)
bm.any(0)
m.ptp()
(m * 2.0).sum(axis=0, keepdims=True)
m.astype("int8")
m.diagonal()
v.cumsum()
m.cumprod(1)
"""

ERRORS = """
v + a5
m + a5
v == a5
v + [1]
v == [1, 2]
[1] + v
v + None
v + "a"
-b
~v
i ** -1
v @ 2
v << 1
m.reshape(5)
m.transpose(0)
v.mT
v.flat
m.reshape(3, -1)
float(v)
i + 2**31
m.squeeze(0)
f[0] + v
k.view("int8")
"""

use()


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_on_arrays(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


@pytest.mark.parametrize("line", ["m.trace()", "m.var(ddof=1)"])  # tracers have attributes of these names
def test_methods_that_tracers_could_hide(line):
    check_on_arrays(line)


def test_foreign_operands():
    import numpy as np

    import shardwise
    import shardwise.numpy as jnp

    x = jnp.arange(3.0)
    assert (x == None) is False  # noqa: E711
    assert (x != "a") is True
    assert isinstance(np.ones(3) * x, shardwise.Array)
    assert isinstance(np.float32(2) * x, shardwise.Array)

    class Foreign:
        def __radd__(self, other):
            return "taken"

    assert x + Foreign() == "taken"

    class Convertible:
        def __jax_array__(self):
            return jnp.ones(3)

    assert (x + Convertible()).shape == (3,)
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    with pytest.raises(TypeError, match="immutable"):
        cast(Any, x)[0] = 1


def test_to_device():
    import shardwise
    import shardwise.numpy as jnp

    device = shardwise.devices()[2]
    assert jnp.arange(3).to_device(device).devices() == {device}
    with pytest.raises(ValueError, match="stream"):
        jnp.arange(3).to_device(device, stream=1)


def test_signed_zeros_are_kept_apart():
    import numpy as np

    import shardwise.numpy as jnp

    x = jnp.ones(2)
    assert not np.signbit((x - x) * 0.0).any()
    assert np.signbit(x * -0.0).all()
    assert not np.signbit(x * 0.0).any()


def test_traced_iteration():
    import shardwise
    import shardwise.numpy as jnp

    @shardwise.jit
    def total(x) -> Any:
        assert len(x) == 3
        return sum(row for row in x)

    assert total(jnp.arange(6).reshape(3, 2)).tolist() == [6, 9]


FIRST_USES = {
    "unpacking": "a, b = x; assert a.shape == (3,)",
    "len": "assert len(x) == 2",
    "iteration": "assert len([row for row in x]) == 2",
    "index": "assert x[0].shape == (3,)",
    "operator": "assert (x + x).shape == (2, 3)",
}


@pytest.mark.parametrize("use", FIRST_USES)
def test_first_use_of_a_traced_array(use: str) -> None:
    """What arrays can do is loaded by its first use, also where that is under a trace and nobody imported the NumPy face."""
    program = f"""
import numpy as np
import shardwise, shardwise.random
def f(x):
    {FIRST_USES[use]}
    return x
shardwise.jit(f)(np.ones((2, 3), np.float32))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


WEAK_POWERS = [
    "x * 2.0**i",
    "x * 2**i",
    "x**i",
    "i**x",
    "x << i",
    "x % i",
    "x // i",
    "x / i",
    "1 - x * i",
    "jnp.where(x > 0, x, i)",
]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int8", "uint8", "int32", "bool"])
def test_traced_weak_integers_promote_as_in_jax(dtype):
    jax = pytest.importorskip("jax")
    import jax.numpy as theirs

    import shardwise as sw
    import shardwise.numpy as ours
    from shardwise.base.config import use_dialect

    def types(library, jnp, program):
        try:
            out = library.eval_shape(eval(f"lambda x, i: {program}", {"jnp": jnp}), jnp.ones(2, dtype), 3)
        except TypeError:
            return TypeError
        return out.dtype.name, out.weak_type

    with use_dialect("latest"):
        for program in WEAK_POWERS:
            assert types(sw, ours, program) == types(jax, theirs, program), program


@pytest.mark.parametrize("container", [{}, [1.0], (1.0,)])
def test_operators_name_a_container_on_the_side_where_it_stands(container):
    import shardwise.numpy as jnp

    kind = type(container).__name__
    with pytest.raises(TypeError, match=f": 'ArrayImpl' and '{kind}'"):
        _ = jnp.ones(1) + container
    with pytest.raises(TypeError, match=f": '{kind}' and 'ArrayImpl'"):
        _ = container + jnp.ones(1)
    with pytest.raises(TypeError, match=f": '{kind}' and 'ArrayImpl'"):
        _ = container @ jnp.ones(1)


def test_weak_operands_of_the_other_width_meet_numbers_of_todays():
    one, half = jnp.asarray(1), jnp.asarray(1.5)

    def results(x, y):
        return x + 2, 2 + x, x * 1 + 2, x + x, y * 1.5, y * 2, y + x, jnp.add(x, 2)

    with sw.enable_x64(True):
        found = results(one, half)
        inside = sw.jit(results)(one, half)
    wide = ["int64", "int64", "int64", "int32", "float64", "float32", "float32", "int64"]
    for some in (found, inside):
        assert [x.dtype.name for x in some] == wide
        assert all(x.weak_type for x in some)

    @sw.jit
    def within(x):
        with sw.enable_x64(True):
            return 2 + x

    assert within(1).dtype == np.int64


@pytest.mark.parametrize(
    ("shape", "dtype", "target"),
    [
        ((), "float32", "int8"),
        ((), "int8", "float32"),
        ((3,), "bfloat16", "int32"),
        ((2, 3), "bool", "int16"),
        ((3,), "float32", "complex64"),
    ],
)
def test_views_that_do_not_divide(shape, dtype, target):
    with pytest.raises(ValueError, match="view: "):
        jnp.ones(shape, dtype).view(target)
