"""Functions of flat values that carry a stack of wrappers, as JAX's older interfaces hand them around.

In: a function, and transformations of it. Out: a `WrappedFun`, whose `call_wrapped` runs the wrappers from the last
added to the first and the function itself innermost. Nothing here traces; a transformation is its author's function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

from shardwise.base.caches import Bounded, at_clear
from shardwise.base.config import context_token

_EMPTY: Any = object()


class StoreException(Exception):
    """An auxiliary output was asked for before its function ran, or was given twice."""


class Store:
    """Holds the auxiliary output of one run of a transformed function."""

    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value = _EMPTY

    def store(self, value: Any) -> None:
        """Keep `value`. StoreException if there is one already."""
        if self:
            raise StoreException(f"the function ran twice: its auxiliary output is {self._value!r} already.")
        self._value = value

    def reset(self) -> None:
        """Forget the value."""
        self._value = _EMPTY

    @property
    def val(self) -> Any:
        """The value. StoreException if the function has not run."""
        if not self:
            raise StoreException(
                "the auxiliary output is known only once the function has run: use call_wrapped first."
            )
        return self._value

    def __bool__(self) -> bool:
        return self._value is not _EMPTY


class EqualStore(Store):
    """Holds the auxiliary output of several runs, which have to agree on it."""

    __slots__ = ()

    def store(self, value: Any) -> None:
        """Keep `value`. StoreException if another one is kept."""
        if self and self._value != value:
            raise StoreException(
                f"two runs of the function gave different auxiliary outputs: {self._value} and {value}."
            )
        self._value = value


class WrappedFun:
    """A function with the transformations to run around it, last added first. Equal if it would do the same."""

    __slots__ = ("debug_info", "f", "params", "stores", "transforms")

    def __init__(
        self,
        f: Callable[..., Any],
        transforms: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...] = (),
        stores: tuple[Store | None, ...] = (),
        params: tuple[tuple[str, Any], ...] = (),
        debug_info: Any = None,
    ) -> None:
        self.f = f
        self.transforms = transforms
        self.stores = stores
        self.params = params
        self.debug_info = debug_info

    @property
    def __name__(self) -> str:
        return getattr(self.f, "__name__", type(self.f).__name__)

    def wrap(self, transform: Callable[..., Any], static: tuple[Any, ...], store: Store | None) -> WrappedFun:
        """With one more transformation: ``transform(function, [store,] *static, *args, **kwargs)``."""
        return WrappedFun(
            self.f, ((transform, static), *self.transforms), (store, *self.stores), self.params, self.debug_info
        )

    def populate_stores(self, outputs: Any) -> None:
        """Give the stores the values that another run of an equal function left."""
        for own, value in zip(self.stores, outputs, strict=True):
            if own is not None:
                own.store(value)

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """Run it."""
        run = functools.partial(self.f, **dict(self.params)) if self.params else self.f
        for (transform, static), store in reversed(list(zip(self.transforms, self.stores, strict=True))):
            run = functools.partial(transform, run, *([] if store is None else [store]), *static)
        return run(*args, **kwargs)

    def with_unknown_names(self) -> WrappedFun:
        """This object: names of arguments and results are not kept."""
        return self

    def _key(self) -> tuple[Any, ...]:
        return self.f, self.transforms, self.params

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, WrappedFun) else NotImplemented

    def __repr__(self) -> str:
        names = [getattr(t, "__name__", repr(t)) for t, _ in self.transforms]
        return f"WrappedFun({' < '.join([*names, self.__name__])})"


def wrap_init(f: Callable[..., Any], params: dict[str, Any] | None = None, *, debug_info: Any = None) -> WrappedFun:
    """`f` without a transformation; `params` are keyword arguments of each call."""
    return WrappedFun(f, params=tuple(sorted((params or {}).items())), debug_info=debug_info)


def transformation2(transform: Callable[..., Any]) -> Callable[..., WrappedFun]:
    """A transformation from ``transform(function, *static, *args, **kwargs) -> results``; apply it as ``t(wrapped, *static)``."""

    @functools.wraps(transform)
    def apply(fun: WrappedFun, *static: Any) -> WrappedFun:
        return fun.wrap(transform, static, None)

    return apply


def transformation_with_aux2(transform: Callable[..., Any]) -> Callable[..., tuple[WrappedFun, Callable[[], Any]]]:
    """Like `transformation2`, with an auxiliary output that ``transform(function, store, *static, *args)`` gives to the store.

    ``t(wrapped, *static)`` returns the function and a thunk of that output, to be called after the function.
    """

    @functools.wraps(transform)
    def apply(
        fun: WrappedFun, *static: Any, use_eq_store: bool = False, unk_names: bool = False
    ) -> tuple[WrappedFun, Callable[[], Any]]:
        del unk_names  # names of results are not kept
        store = EqualStore() if use_eq_store else Store()
        return fun.wrap(transform, static, store), lambda: store.val

    return apply


def _run(generator: Any, function: Callable[..., Any]) -> Any:
    """The last value of a transformation written as a generator, which yields (args, kwargs) first and is sent the results."""
    args, kwargs = next(generator)
    try:
        results = function(*args, **kwargs)
    except BaseException as error:
        generator.throw(error)  # lets it leave its contexts
        raise
    last = generator.send(results)
    generator.close()
    return last


def transformation(transform: Callable[..., Any]) -> Callable[..., WrappedFun]:
    """A transformation from a generator ``transform(*static, *args)``: it yields (args, kwargs), gets results, yields results."""

    @functools.wraps(transform)
    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return _run(transform(*args, **kwargs), function)

    return transformation2(call)


def transformation_with_aux(transform: Callable[..., Any]) -> Callable[..., tuple[WrappedFun, Callable[[], Any]]]:
    """Like `transformation`, for generators that yield (results, auxiliary output) last."""

    @functools.wraps(transform)
    def call(function: Callable[..., Any], store: Store, *args: Any, **kwargs: Any) -> Any:
        results, aux = _run(transform(*args, **kwargs), function)
        store.store(aux)
        return results

    return transformation_with_aux2(call)


def merge_linear_aux(aux1: Callable[[], Any], aux2: Callable[[], Any]) -> tuple[bool, Any]:
    """Whether the first of two thunks has its output, and the output of the one that has."""
    try:
        out = aux1()
    except StoreException:
        return False, aux2()
    try:
        aux2()
    except StoreException:
        return True, out
    raise StoreException("both auxiliary outputs are there, one was expected.")


def cache(call: Callable[..., Any], *, explain: Any = None) -> Callable[..., Any]:
    """``call(wrapped, *args)``, which runs once for equal functions and arguments in the same context.

    `explain` is never called: jax_explain_cache_misses speaks of `jit` alone.
    """
    del explain
    results_by_key: Bounded[Hashable, tuple[Any, list[Any]]] = Bounded()
    at_clear(results_by_key.clear)

    @functools.wraps(call)
    def cached_call(fun: WrappedFun, *args: Any) -> Any:
        key = (fun, args, context_token())
        entry = results_by_key.get(key)
        if entry is None:
            result = call(fun, *args)
            results_by_key[key] = result, [s.val if s else _EMPTY for s in (s or Store() for s in fun.stores)]
            return result
        result, values = entry
        for store, value in zip(fun.stores, values, strict=True):
            if store is not None and value is not _EMPTY and not store:
                store.store(value)
        return result

    cached_call.cache_clear = results_by_key.clear  # type: ignore[attr-defined]
    return cached_call
