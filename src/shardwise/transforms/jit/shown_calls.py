"""`shown_call`: functions that JAX compiles by themselves, and so shows as one equation `jit[name=...]` in printed programs.

Here such a function is a part of the program around it, which the compiler would make of its call anyway. Only while a
program is traced to be shown (`showing_calls`), by `make_jaxpr` for instance, the function is traced by itself, and its
call is an equation. At other times the decorator costs a look at a number.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from shardwise.base.caches import Bounded, at_clear
from shardwise.base.locks import free_lock
from shardwise.base.tree import tree_leaves
from shardwise.base.wrapping import name_of, wraps
from shardwise.ir import Array, Literal, exact_items
from shardwise.ir.showing import SHOWING
from shardwise.transforms.jit.jit import jit
from shardwise.transforms.jit.wrapped import JitWrapped

F = TypeVar("F", bound=Callable[..., Any])


class _Programs:
    """How many programs are being traced to be shown, in all threads: read before the setting, as it is cheaper."""

    shown = 0
    lock = free_lock()


@contextmanager
def showing_calls() -> Generator[None]:
    """A context in which calls of decorated functions are traced as equations of their own."""
    with _Programs.lock:
        _Programs.shown += 1
    try:
        with SHOWING.override(True):
            yield
    finally:
        with _Programs.lock:
            _Programs.shown -= 1


def programs_are_shown() -> bool:
    """Whether a program is traced to be shown."""
    return bool(_Programs.shown) and SHOWING.get()


def shown_call(static: str = "", *, name: str | None = None) -> Callable[[F], F]:
    """Decorate a function that JAX compiles by itself, under `name` if it is not the function's own.

    Args:
        static: the names of the parameters that are no operands of the call, separated by spaces.
        name: of the function that JAX compiles.
    """
    static_names = frozenset(static.split())

    def decorate(fun: F) -> F:
        shown_name = name or name_of(fun)
        parameters: list[inspect.Signature] = []  # made when it is needed

        @wraps(fun)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not programs_are_shown():
                return fun(*args, **kwargs)
            if not parameters:
                parameters.append(inspect.signature(fun))
            try:
                bound = parameters[0].bind(*args, **kwargs)
            except TypeError:  # the function says what is wrong with them
                return fun(*args, **kwargs)
            return _call_shown(fun, shown_name, static_names, bound)

        return call  # type: ignore[return-value]

    return decorate


_compiled_calls: Bounded[Any, JitWrapped[..., Any]] = Bounded(1024)
at_clear(_compiled_calls.clear)


def _call_shown(fun: Callable[..., Any], called: str, fixed: frozenset[str], bound: inspect.BoundArguments) -> Any:
    given = bound.arguments
    operands = {k: v for k, v in given.items() if k not in fixed and _is_operand(v)}
    settings = {k: v for k, v in given.items() if k not in operands}
    if not operands:
        return fun(*bound.args, **bound.kwargs)
    try:
        key = (fun, called, tuple(operands), exact_items(settings))
        compiled_function = _compiled_calls.get(key)
    except TypeError:  # a setting that does not hash
        return fun(*bound.args, **bound.kwargs)
    if compiled_function is None:
        names, signature = tuple(operands), bound.signature

        def on_operands(*values: Any) -> Any:
            arguments = {**settings, **dict(zip(names, values, strict=True))}
            ordered_arguments = {k: arguments[k] for k in signature.parameters if k in arguments}
            full = inspect.BoundArguments(signature, ordered_arguments)  # pyright: ignore[reportArgumentType]
            return fun(*full.args, **full.kwargs)

        on_operands.__name__ = on_operands.__qualname__ = called
        compiled_function = _compiled_calls[key] = jit(on_operands)
    return compiled_function(*operands.values())


_NUMBERS = (bool, int, float, complex, np.ndarray, np.generic)


def _is_operand(value: Any) -> bool:
    """Whether JAX traces an argument: an array or a number, or a tree of them."""
    leaves = tree_leaves(value)
    return bool(leaves) and all(isinstance(x, (Array, Literal, *_NUMBERS)) for x in leaves)
