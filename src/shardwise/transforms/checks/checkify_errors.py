"""Errors as values: an integer for the check that failed first, and the arrays of its message.

An `Error` is a tree of arrays. Its `code` is 0, or the number of the check that failed first; each check that may fail is a
`Site`, which makes the message, and has a payload: the arrays of its message, valid only if the code is the site's. The op
'check' turns an error into an effect again; `checkify` replaces it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tree import tree_flatten, tree_unflatten
from shardwise.base.treeclass import register_pytree_node_class
from shardwise.ir import Array, Program, ShapedArray, Var, bind, define_op, literal
from shardwise.ir.op import Params
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.elementwise.selection import select_n_p
from shardwise.ops.indexing.dim_slices import dynamic_index_in_dim
from shardwise.ops.reductions.arg_extrema import argmax
from shardwise.ops.reductions.reduce import reduce_max
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.derivative import do, full_in_front

_INT32 = np.dtype(np.int32)


class JaxRuntimeError(ValueError):
    """A check failed."""


class JaxException(Exception):
    """The failure from which `JaxRuntimeError` is raised."""


class FailedCheckError(JaxException):
    """A `check` of the user's."""


class NaNError(JaxException):
    """An operation gave a NaN."""


class DivisionByZeroError(JaxException):
    """A divisor was zero."""


class OOBError(JaxException):
    """An index lay outside of its dim."""


class BatchedError(JaxException):
    """Several elements of a mapped dim, each with its own error: `error_mapping`, by index."""

    def __init__(self, error_mapping: dict[tuple[int, ...], JaxException]) -> None:
        self.error_mapping = error_mapping
        super().__init__(
            "\n".join(f"at mapped index {', '.join(map(str, i))}: {error}" for i, error in error_mapping.items())
        )


_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A check in the program: its number, the class of its error, and the message for a payload."""

    code: int
    kind: type[JaxException]
    explain: Callable[[Sequence[Any]], str]


def new_site(kind: type[JaxException], explain: str | Callable[[Sequence[Any]], str]) -> Site:
    """A site with a number of its own; the message may be fixed."""
    return Site(next(_numbers), kind, explain if callable(explain) else lambda _: explain)


@register_pytree_node_class
class Error:
    """The check that failed first, if any did. Made by `checkify`; a tree of arrays, so that it passes through jit and vmap."""

    __slots__ = ("code", "payloads", "sites")

    def __init__(self, code: Any = None, payloads: tuple[tuple[Any, ...], ...] = (), sites: tuple[Site, ...] = ()):
        self.code = code
        self.payloads = payloads
        self.sites = sites

    def get(self) -> str | None:
        """The message of the check that failed first, or None."""
        exception = self.get_exception()
        return None if exception is None else str(exception)

    def get_exception(self) -> JaxException | None:
        """The error as an exception, or None. One with several elements gives a `BatchedError`."""
        if self.code is None:
            return None
        codes = np.asarray(self.code)
        exceptions = {i: self._at(int(codes[i]), i) for i in np.ndindex(codes.shape) if codes[i]}
        if not exceptions:
            return None
        return BatchedError(exceptions) if codes.ndim else exceptions[()]

    def _at(self, code: int, index: tuple[int, ...]) -> JaxException:
        site, payload = next((s, p) for s, p in zip(self.sites, self.payloads, strict=True) if s.code == code)
        return site.kind(site.explain([x[index] if index else x for x in payload]))

    def throw(self) -> None:
        """Raise JaxRuntimeError if a check failed; in a traced function, see `check_error`."""
        check_error(self)

    def __str__(self) -> str:
        return f"Error({self.get()})"

    def tree_flatten(self) -> tuple[tuple[Any, Any], tuple[Site, ...]]:
        """The arrays; and the sites."""
        return (self.code, self.payloads), self.sites

    @classmethod
    def tree_unflatten(cls, sites: tuple[Site, ...], children: Any) -> Error:
        """The error of these arrays."""
        code, payloads = children
        return cls(code, payloads, sites)


init_error = Error()


# -- errors as values ----------------------------------------------------------------------------------------------------


def flat_error(error: Error) -> list[Any]:
    """The arrays of an error: nothing if there are no sites."""
    return [error.code, *[x for p in error.payloads for x in p]] if error.sites else []


def error_of(values: Sequence[Any], sites: tuple[Site, ...], sizes: Sequence[int]) -> Error:
    """The error whose arrays are the first of `values`; `sizes` are those of the payloads."""
    if not sites:
        return init_error
    rest = iter(values[1:])
    return Error(values[0], tuple(tuple(itertools.islice(rest, n)) for n in sizes), sites)


def sizes_of(error: Error) -> tuple[int, ...]:
    """The number of arrays in the payload of each site."""
    return tuple(map(len, error.payloads))


def failure_error(site: Site, pred: Any, payload: Sequence[Any] = ()) -> Error:
    """The error of a site that fails where the bool scalar `pred` is true."""
    zero, code = literal(0, _INT32), literal(site.code, _INT32)
    return Error(bind(select_n_p, as_array(pred), zero, code), (tuple(map(as_array, payload)),), (site,))


def join_errors(first: Error, then: Error) -> Error:
    """The first of two errors that tells of a failure."""
    if not (first.sites and then.sites):
        return first if first.sites else then
    if first.code.ndim and then.code.ndim and first.code.shape != then.code.shape:  # of two meshes, say
        first, then = whole(first), whole(then)
    shape = max(first.code.shape, then.code.shape, key=len)
    clean = _repeat_scalar(do.eq(first.code, 0), shape)
    payloads = {site: _spread(payload, first, shape) for site, payload in zip(first.sites, first.payloads, strict=True)}
    for site, payload in zip(then.sites, then.payloads, strict=True):
        new = _spread(payload, then, shape)
        old = payloads.get(site, new)
        payloads[site] = tuple(a if a is b else _choose_error(clean, b, a) for a, b in zip(old, new, strict=True))
    code = _choose_error(clean, _repeat_scalar(then.code, shape), _repeat_scalar(first.code, shape))
    return Error(code, tuple(payloads.values()), tuple(payloads))


def _repeat_scalar(x: Array, shape: tuple[int, ...]) -> Any:
    return x if x.shape == shape else do.broadcast_in_dim(x, shape=shape, broadcast_dimensions=(), out_sharding=None)


def _spread(payload: Sequence[Any], error: Error, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A payload for as many elements as `shape` has."""
    if error.code.shape == shape:
        return tuple(payload)
    dims = lambda x: tuple(range(len(shape), len(shape) + x.ndim))  # noqa: E731
    return tuple(
        do.broadcast_in_dim(x, shape=(*shape, *x.shape), broadcast_dimensions=dims(x), out_sharding=None)
        for x in payload
    )


def _choose_error(clean: Any, new: Any, old: Any) -> Any:
    if clean.ndim and old.ndim > clean.ndim:
        clean = do.broadcast_in_dim(
            clean, shape=old.shape, broadcast_dimensions=tuple(range(clean.ndim)), out_sharding=None
        )
    return bind(select_n_p, clean, old, new)


def whole(error: Error) -> Error:
    """One error for several elements: the error of the last element that failed."""
    while error.sites and error.code.ndim:
        size = error.code.shape[0]
        bad = error.code if error.code.ndim == 1 else _any_bad(error.code)
        order = as_array(np.arange(1, size + 1, dtype=_INT32))
        ranks = bind(select_n_p, do.ne(bad, 0), as_array(np.zeros(size, _INT32)), order)
        last = argmax(ranks, 0, _INT32)
        error = Error(
            entry(error.code, last), tuple(tuple(entry(x, last) for x in p) for p in error.payloads), error.sites
        )
    return error


def _any_bad(code: Any) -> Any:
    return reduce_max(code, tuple(range(1, code.ndim)))


def entry(x: Any, at: Any) -> Any:
    """``x[at]`` for an int32 scalar in range."""

    return dynamic_index_in_dim(x, at, 0, keepdims=False)


def strong(error: Error) -> Error:
    """The error with strongly typed payloads, for loops to carry."""
    payloads = tuple(tuple(convert(x, x.dtype, False) for x in p) for p in error.payloads)
    return Error(error.code, payloads, error.sites)


def enabled_part(error: Error, enabled: frozenset[Any]) -> Error:
    """The error restricted to sites of these classes."""
    on = [site.kind in enabled for site in error.sites]
    if all(on):
        return error
    if not any(on):
        return init_error
    code = error.code
    for site, keep in zip(error.sites, on, strict=True):
        if not keep:
            code = _choose_error(do.eq(code, site.code), as_array(np.zeros(code.shape, _INT32)), code)
    kept_checks = [(s, p) for s, p, keep in zip(error.sites, error.payloads, on, strict=True) if keep]
    return Error(code, tuple(p for _, p in kept_checks), tuple(s for s, _ in kept_checks))


# -- errors as effects ---------------------------------------------------------------------------------------------------


def _raise_now(*values: Any, sites: tuple[Site, ...], sizes: tuple[int, ...], debug: bool) -> list[Any]:
    exception = None if debug else error_of(list(map(as_array, values)), sites, sizes).get_exception()
    if exception is not None:
        raise JaxRuntimeError(str(exception)) from exception
    return []


def _refuse_check(eqn: Any) -> Program:
    if not eqn.params["debug"]:
        raise ValueError(
            "Cannot abstractly evaluate a checkify.check which was not functionalized: it is part of a compiled program "
            "(jit, scan, cond, ...), which cannot raise. Apply checkify.checkify to the function that is compiled."
        )
    return Program(tuple(Var(a.aval) for a in eqn.inputs), (), ())


def _check_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    bind(check_p, *primals, **params)
    return [], []


def _check_batch(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> tuple[list[Any], list[int | None]]:
    mapped_values = [full_in_front(size, v, d) for v, d in zip(values, dims, strict=True)]
    error = whole(error_of(mapped_values, params["sites"], params["sizes"]))
    bind(check_p, *flat_error(error), **params)
    return [], []


def _check_type(*types: ShapedArray, **_: Any) -> tuple[ShapedArray, ...]:
    return ()


check_p = define_op(
    "check",
    type_rule=_check_type,
    multiple_results=True,
    typed=True,
    effects=True,
    eager=_raise_now,
    inline=_refuse_check,
    jvp=_check_jvp,
    batch=_check_batch,
)


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Raise JaxRuntimeError unless `pred` is true, or let `checkify` note it.

    Args:
        pred: a bool, or an array of one.
        msg: the message, a format string for the other arguments.
        fmt_args, fmt_kwargs: trees of arrays.
        debug: do nothing outside of `checkify`.

    Raises:
        TypeError: `pred` is no bool scalar, or something to be formatted is no array.
        ValueError: on compilation, outside of `checkify`.

    >>> def f(x):
    ...     jax.experimental.checkify.check(x > 0, "x is {x}, not positive", x=x)
    ...     return jnp.log(x)
    >>> error, out = jax.jit(jax.experimental.checkify.checkify(f))(-1.0)
    >>> print(error.get())
    x is -1.0, not positive (`check` failed)
    """
    if not (isinstance(pred, bool) or (isinstance(pred, Array) and pred.shape == () and pred.dtype == np.bool_)):
        raise TypeError(f"{'debug_check' if debug else 'check'} takes a scalar pred as argument, a bool; got {pred!r}.")
    leaves, tree = tree_flatten((fmt_args, fmt_kwargs))
    for leaf in leaves:
        if not isinstance(leaf, (Array, np.ndarray)):
            raise TypeError(
                f"Formatting arguments to checkify.check need to be PyTrees of arrays, but got {leaf!r} of type "
                f"{type(leaf)}."
            )

    def explain(payload: Sequence[Any]) -> str:
        args, kwargs = tree_unflatten(tree, payload)
        return f"{msg.format(*args, **kwargs)} (`check` failed)"

    error = failure_error(new_site(FailedCheckError, explain), do.not_(as_array(pred)), leaves)
    bind(check_p, *flat_error(error), sites=error.sites, sizes=sizes_of(error), debug=debug)


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """`check` of `pred`, with `msg`, `fmt_args` and `fmt_kwargs` as there, that does nothing outside of `checkify`.

    >>> jax.experimental.checkify.debug_check(False, "not seen")
    """
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def check_error(error: Any) -> None:
    """Raise JaxRuntimeError if `error` holds a failure; while traced, the enclosing `checkify` records it.

    TypeError if `error` is no `Error`; ValueError on compilation outside of `checkify`.

    >>> error, out = jax.experimental.checkify.checkify(jnp.sin)(0.0)
    >>> jax.experimental.checkify.check_error(error)
    """
    if not isinstance(error, Error):
        raise TypeError(f"check_error takes an Error as argument, got type {type(error)} instead.")
    if not error.sites:
        return
    arrays = Error(as_array(error.code), tuple(tuple(map(as_array, p)) for p in error.payloads), error.sites)
    one = whole(arrays)
    bind(check_p, *flat_error(one), sites=one.sites, sizes=sizes_of(one), debug=False)
