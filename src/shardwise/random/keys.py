"""Keys: made from integers or words, split, folded, and the checks that samplers make of their key.

A key has two forms. The typed form is an array of dtype ``key<fry>``; the raw form, as `PRNGKey` makes it, is a
``uint32`` array whose last dim holds the two words of the key. Every function takes both and answers in kind.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import KEY_DTYPES, KeyDtype, is_key_dtype
from shardwise.ir import Array, Literal, literal
from shardwise.lax import adaptive as lax
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.random.random_bits import (
    random_clone,
    random_fold_in,
    random_seed,
    random_split,
    random_unwrap,
    random_wrap,
)
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.random.compiled import compiled_in_calls

_UINT32 = np.dtype(np.uint32)
_THREEFRY = "threefry2x32"


class PRNGSpec:
    """Names a generator; `impl=` and `dtype=` of the functions here take it, as they take the name itself."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"PRNGSpec({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PRNGSpec) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def default_prng_impl() -> PRNGSpec:
    """The generator that setting ``jax_default_prng_impl`` names.

    >>> jax.random.default_prng_impl()
    PRNGSpec('threefry2x32')
    """
    return PRNGSpec(config.jax_default_prng_impl)


_default_impl = config.setting("jax_default_prng_impl").get
_seed_offset = config.setting("jax_random_seed_offset").get
_words_allowed = config.setting("jax_legacy_prng_key").get
_x64 = config.setting("jax_enable_x64").get


def resolve_prng_impl(spec: PRNGSpec | KeyDtype | str | Hashable | None) -> PRNGSpec:
    """The generator that `spec` means; None means the default.

    Raises:
        ValueError: no generator has that name.
        TypeError: `spec` is nothing that names one.

    >>> jax.random.resolve_prng_impl("threefry2x32")
    PRNGSpec('threefry2x32')
    """
    if spec is None:
        name = _default_impl()
    elif isinstance(spec, PRNGSpec):
        name = spec.name
    elif isinstance(spec, KeyDtype):
        name = _name_of(spec)
    elif isinstance(spec, str):
        name = spec
    else:
        raise TypeError(
            f"unrecognized type {type(spec)} for specifying PRNG implementation; expected a name such as "
            f"{_THREEFRY!r}, a key dtype or a PRNGSpec."
        )
    if name in KEY_DTYPES:
        return PRNGSpec(name)
    raise ValueError(f'unrecognized PRNG implementation "{name}". Did you mean "{_THREEFRY}"?')


def key_dtype(impl_spec: Any = None) -> KeyDtype:
    """The dtype of typed keys of the generator `impl_spec`, by default the default one.

    >>> jax.random.key_dtype("rbg")
    key<rbg>
    """
    return KEY_DTYPES[resolve_prng_impl(impl_spec).name]


def _name_of(dtype: KeyDtype) -> str:
    return next(name for name, one in KEY_DTYPES.items() if one == dtype)


def _impl_of(impl: Any, dtype: Any, function: str) -> KeyDtype:
    if impl is not None and dtype is not None:
        raise ValueError(f"random.{function} takes one of impl= and dtype=, got {impl!r} and {dtype!r}.")
    return key_dtype(impl if dtype is None else dtype)


# -- making keys ------------------------------------------------------------------------------------------------------------------


def _seed_value(seed: Any, function: str) -> Array | Literal:
    if isinstance(seed, int):  # True and False are 1 and 0
        wide = np.int64(seed)  # OverflowError beyond 64 bits
        return literal(wide if _x64() else wide.astype(np.int32))
    value = as_value(seed)
    if is_key_dtype(value.dtype):
        raise TypeError(f"{function} accepts a scalar seed, but was given a PRNG key.")
    if value.ndim:
        raise TypeError(
            f"{function} accepts a scalar seed, but was given an array of shape {value.shape} != (). "
            "Use jax.vmap for batching."
        )
    return value


def _seed_key(seed: Array | Literal, dtype: KeyDtype) -> Array:
    offset = _seed_offset()
    if offset and np.issubdtype(seed.dtype, np.integer):
        seed = lax.add(as_array(seed), literal(offset, seed.dtype))
    return random_seed(seed, dtype)


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Array:
    """The typed key of an integer seed: a scalar of dtype ``key<fry>``.

    Args:
        seed: an integer scalar, traced or not; 32 bits count unless 64-bit types are enabled.
        impl, dtype: the generator, by name or by key dtype; give at most one. threefry2x32, threefry4x32,
            philox2x32, philox4x32, rbg or unsafe_rbg.

    Raises:
        TypeError: `seed` is no integer scalar.
        ValueError: both `impl` and `dtype` are given, or the name is unknown.

    >>> jax.random.key(0)
    Array((), dtype=key<fry>) overlaying:
    [0 0]
    """
    made_of = _impl_of(impl, dtype, "key")
    return _seed_key(_seed_value(seed, "key"), made_of)


def PRNGKey(seed: Any, *, impl: Any = None) -> Array:
    """The raw key of an integer seed: two uint32 words. A typed key if ``jax_enable_custom_prng`` is set; see `key`.

    `impl` names the generator.

    >>> jax.random.PRNGKey(0)
    Array([0, 0], dtype=uint32)
    """
    dtype = _impl_of(impl, None, "PRNGKey")
    new_key = _seed_key(_seed_value(seed, "PRNGKey"), dtype)
    return new_key if config.jax_enable_custom_prng else random_unwrap(new_key)


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Array:
    """Typed keys of the generator `impl` from their words `key_bits_array`: u32[..., 2] (of other generators 1, 2 or 4)
    -> key[...]. TypeError for other dtypes and shapes.

    >>> jax.random.wrap_key_data(jnp.array([0, 7], dtype=jnp.uint32))
    Array((), dtype=key<fry>) overlaying:
    [0 7]
    """
    made_of = _impl_of(impl, dtype, "wrap_key_data")
    value = as_value(key_bits_array)
    _check_words(value, made_of)
    return random_wrap(value, made_of)


def key_data(keys: Any) -> Array:
    """The words of keys: key[...] -> u32[..., 2] (of other generators 1, 2 or 4). Raw keys come back as they are.

    >>> jax.random.key_data(jax.random.key(7))
    Array([0, 7], dtype=uint32)
    """
    value = checked_key("key_data", keys, batched=True)
    return random_unwrap(value) if is_typed(value) else value


def key_impl(keys: Any) -> str:
    """The name of the generator that keys belong to.

    >>> jax.random.key_impl(jax.random.key(0))
    'threefry2x32'
    """
    value = checked_key("key_impl", keys, batched=True)
    return _name_of(value.dtype) if is_key_dtype(value.dtype) else _default_impl()


def clone(key: Any) -> Array:
    """The same key, marked as one to be used again. Changes no bits.

    >>> jax.random.uniform(jax.random.clone(jax.random.key(0))) == jax.random.uniform(jax.random.key(0))
    Array(True, dtype=bool)
    """
    return random_clone(as_value(key))


# -- checking keys ----------------------------------------------------------------------------------------------------------------


def is_typed(key: Array) -> bool:
    """Whether `key` is a typed key rather than words."""
    return is_key_dtype(key.dtype)


def typed_key(key: Array) -> Array:
    """A key in typed form."""
    return key if is_typed(key) else random_wrap(key, key_dtype())


def _check_words(value: Any, dtype: KeyDtype) -> None:
    if value.dtype != _UINT32 or value.shape[-1:] != (dtype.words,):
        raise TypeError(
            f"JAX encountered invalid PRNG key data: expected uint32 with a shape that ends in ({dtype.words},), got "
            f"{value.aval.str_short()}. Make keys with random.key or random.PRNGKey."
        )


def _refuse_words(name: str) -> None:
    message = (
        f"Legacy uint32 key array passed as key to jax.random function {name}. Make keys with random.key(seed), or set "
        'jax_legacy_prng_key="allow" where words are meant.'
    )
    if config.jax_legacy_prng_key == "error":
        raise ValueError(message)
    warnings.warn(message, UserWarning, stacklevel=4)


def checked_key(name: str, key: Any, *, batched: bool = False) -> Array:
    """`key` as an Array, typed or raw, after the checks that every function makes.

    Raises:
        TypeError: it is no key.
        ValueError: it is an array of keys and `batched` is False.
    """
    try:
        value = as_value(key)
    except (TypeError, OverflowError):
        raise TypeError(
            f"unexpected PRNG key type {type(key)} given to random.{name}; expected a key made by random.key or "
            "random.PRNGKey."
        ) from None
    if is_key_dtype(value.dtype):
        shape = value.shape
    else:
        _check_words(value, key_dtype())
        shape = value.shape[:-1]
        if _words_allowed() != "allow":
            _refuse_words(name)
        elif config.jax_enable_custom_prng:
            warnings.warn(
                "Raw arrays as random keys to jax.random functions are deprecated. Assuming valid "
                f"{_default_impl()} key for "
                "now.",
                FutureWarning,
                stacklevel=3,
            )
    if shape and not batched:
        raise ValueError(
            f"{name} accepts a single key, but was given a key array of shape {shape} != (). Use jax.vmap for batching."
        )
    assert isinstance(value, Array)
    return value


# -- keys from keys ---------------------------------------------------------------------------------------------------------------


def _in_form_of(key: Array, made: Array) -> Array:
    return made if is_typed(key) else random_unwrap(made)


@compiled_in_calls
def _split(key: Array, *, shape: tuple[int, ...]) -> Array:
    return _in_form_of(key, random_split(typed_key(key), shape))


def split(key: Any, num: int | Sequence[int] = 2) -> Array:
    """`num` (a number or a shape) new keys from one: key[] -> key[*num], or u32[2] -> u32[*num, 2] in raw form.

    >>> k1, k2 = jax.random.split(jax.random.key(0))
    >>> jax.random.uniform(k1) == jax.random.uniform(k2)
    Array(False, dtype=bool)
    """
    shape = tuple(operator.index(n) for n in num) if isinstance(num, Sequence) else (operator.index(num),)
    return _split(checked_key("split", key), shape=shape)


@compiled_in_calls
def _fold_in(key: Array, data: Array) -> Array:
    return _in_form_of(key, random_fold_in(typed_key(key), data))


def fold_in(key: Any, data: Any) -> Array:
    """A new key from a key and an integer of 32 bits.

    Raises:
        TypeError: `data` is no scalar.
        OverflowError: a Python int that does not fit uint32.

    >>> jax.random.key_data(jax.random.fold_in(jax.random.key(0), 7)).shape
    (2,)
    """
    own_key = checked_key("fold_in", key)
    if isinstance(data, int):
        return _fold_in(own_key, np.uint32(data))
    value = as_value(data)
    if value.ndim:
        raise TypeError(
            f"fold_in accepts a scalar, but was given an array of shape {value.shape} != (). Use jax.vmap for batching."
        )
    return _fold_in(own_key, convert(value, _UINT32))
