"""`composed_function`: functions made of several ops that run as one compiled program on concrete arrays.

Op by op, such a function would cost one dispatch per op and the time of its own checks. If an enclosing function is being
traced, this one is traced too, and its ops become part of the enclosing program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from shardwise.base.wrapping import wraps
from shardwise.engine.array import ArrayImpl
from shardwise.ir import exact, exact_items, is_eager
from shardwise.transforms.jit.jit import jit
from shardwise.transforms.jit.wrapped import JitWrapped

F = TypeVar("F", bound=Callable[..., Any])
_VARIANTS = 256  # combinations of settings cached per function


def composed_function(arrays: int, *, numbers: bool = False) -> Callable[[F], F]:
    """Decorate a function whose first `arrays` parameters are arrays (with `numbers`, Python numbers too) and whose other
    parameters are settings.

    Calls with values other than concrete arrays, or with a setting that does not hash, run op by op.
    """
    kinds = {ArrayImpl, float, int} if numbers else {ArrayImpl}

    def decorate(fun: F) -> F:
        variants: dict[Any, JitWrapped[..., Any]] = {}

        @wraps(fun)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = args[:arrays]
            for x in given:
                if type(x) not in kinds:
                    return fun(*args, **kwargs)
            if len(given) != arrays or not is_eager():
                return fun(*args, **kwargs)
            try:
                key = () if len(args) == arrays and not kwargs else _settings(args[arrays:], kwargs)
                compiled_function = variants.get(key)
            except TypeError:
                return fun(*args, **kwargs)
            if compiled_function is None:
                if len(variants) >= _VARIANTS:
                    variants.clear()
                compiled_function = variants[key] = jit(_on_arrays(fun, args[arrays:], kwargs))
            return compiled_function(*given)

        return call  # type: ignore[return-value]

    return decorate


def _settings(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The settings as a key; TypeError for a setting that does not hash, and for numbers that are data rather than settings."""
    if any(type(a) in (float, complex) for a in (*args, *kwargs.values())):
        raise TypeError
    return exact(args), exact_items(kwargs)


def _on_arrays(fun: Callable[..., Any], settings: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    """`fun` as a function of its arrays only."""
    if not settings and not kwargs:
        return fun

    def on_arrays(*arrays: Any) -> Any:
        return fun(*arrays, *settings, **kwargs)

    return functools.update_wrapper(on_arrays, fun)
