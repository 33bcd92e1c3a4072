"""Static and donated arguments: from the user's numbers and names to the function's positions and names."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable
from typing import Any

from shardwise.base.collections_given import given_items
from shardwise.base.errors import JaxRuntimeError
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tree import keystr, tree_flatten_with_path

Nums = tuple[int, ...]
Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArgSelection:
    """The arguments that are static and those that are donated, by position and by keyword."""

    static_nums: Nums = ()
    static_names: Names = ()
    donate_nums: Nums = ()
    donate_names: Names = ()


def check_function(fun: Any) -> None:
    """TypeError unless `fun` is a function that can be traced."""
    if isinstance(fun, staticmethod):
        raise TypeError(f"staticmethod arguments are not supported, got {fun!r}: compile first, then make it static.")
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r}")
    if inspect.isgeneratorfunction(fun):
        raise TypeError(f"Expected a function, got a generator function: {fun!r}. Return a list instead of yielding.")


# Options of JAX's that say how hard XLA tries.
_EFFORTS = frozenset(
    {"exec_time_optimization_effort", "memory_fitting_effort", "memory_fitting_level", "optimization_level"}
)


def check_compiler_options(options: Any) -> None:
    """XLA's options, whose names begin with ``xla_``, and those for its effort are accepted without effect; JaxRuntimeError for others.

    AttributeError for anything but a dict.
    """
    if options is None:
        return
    if not isinstance(options, dict):
        raise AttributeError(f"compiler_options takes a dict, got {options!r}")
    unknown = [k for k in options if not str(k).startswith("xla_") and k not in _EFFORTS]
    if unknown:
        raise JaxRuntimeError(f"No such compile option: {unknown[0]!r}. Names of XLA's options begin with 'xla_'.")


def signature_of(fun: Callable[..., Any]) -> inspect.Signature | None:
    """The signature, or None if the function has none (builtins)."""
    try:
        return inspect.signature(fun)
    except (ValueError, TypeError):
        return None


def as_nums(value: Any, option: str) -> Nums:
    """An int or an iterable of ints as a tuple."""
    if value is None:
        return ()
    items: tuple[Any, ...] = (value,) if not isinstance(value, Iterable) or isinstance(value, str) else tuple(value)
    try:
        return tuple(operator.index(i) for i in items)
    except TypeError:
        raise TypeError(f"{option} takes an int or a collection of ints, got {value!r}") from None


def from_beginning(nums: Iterable[int], count: int) -> set[int]:
    """The positions `nums` of `count` arguments, negative ones counted from the end; positions beyond the last are dropped.

    ValueError for a position before the first argument.
    """
    for n in nums:
        if n < -count:
            raise ValueError(
                f"Positional argument indices, e.g. for `static_argnums`, must have value greater than or equal to -len(args) and less "
                f"than len(args), but got value {n} for len(args) == {count}."
            )
    return {n + count if n < 0 else n for n in nums}


def as_names(value: Any, option: str) -> Names:
    """A str or an iterable of strs as a tuple."""
    if value is None:
        return ()
    items = (value,) if isinstance(value, str) else given_items(value, f"{option} takes a str or a collection of strs")
    if not all(isinstance(i, str) for i in items):
        raise TypeError(f"{option} takes a str or a collection of strs, got {value!r}")
    return items


def select_arguments(
    fun: Callable[..., Any], static_argnums: Any, static_argnames: Any, donate_argnums: Any, donate_argnames: Any
) -> ArgSelection:
    """Check the four options against the function's signature and infer the missing half of each pair.

    Raises ValueError for positions or names that the function does not have, and for static arguments that are donated.
    """
    if static_argnums is static_argnames is donate_argnums is donate_argnames is None:
        return ArgSelection()  # avoids reading the signature, which takes longer than the rest of jit
    sig = signature_of(fun)
    static_nums, static_names = _pair(sig, static_argnums, static_argnames, "static")
    donate_nums, donate_names = _pair(sig, donate_argnums, donate_argnames, "donate")
    both = set(static_nums) & set(donate_nums) or set(static_names) & set(donate_names)
    if both:
        raise ValueError(
            f"static_argnames and donate_argnames cannot intersect: {sorted(both, key=str)} are in "
            "static_argnums/static_argnames and in donate_argnums/donate_argnames. Remove them from one."
        )
    return ArgSelection(static_nums, static_names, donate_nums, donate_names)


def _positional(sig: inspect.Signature) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in sig.parameters.values() if p.kind in kinds]


def _pair(sig: inspect.Signature | None, nums: Any, names: Any, what: str) -> tuple[Nums, Names]:
    nums_given, names_given = nums is not None, names is not None
    positions, keywords = as_nums(nums, f"{what}_argnums"), as_names(names, f"{what}_argnames")
    if sig is None or not (nums_given or names_given):
        return positions, keywords
    params = sig.parameters.values()
    order = _positional(sig)
    if not any(p.kind is p.VAR_POSITIONAL for p in params):
        for n in positions:
            if not -len(order) <= n < len(order):
                raise ValueError(
                    f"Jitted function has {what}_argnums={positions}, but only accepts {len(order)} positional arguments."
                )
        positions = tuple(n % len(order) for n in positions) if order else positions
    if not any(p.kind is p.VAR_KEYWORD for p in params):
        parameter_names = {p.name for p in params if p.kind is not p.VAR_POSITIONAL and p.kind is not p.POSITIONAL_ONLY}
        unknown = set(keywords) - parameter_names
        if unknown:
            raise ValueError(
                f"Jitted function has invalid argnames {unknown} in {what}_argnames. "
                f"Function does not take these args; it takes {sorted(parameter_names)}."
            )
    nameless = {p.name for p in params if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)} & set(keywords)
    if nameless:
        raise ValueError(
            f"Jitted function has invalid argnames {nameless} in {what}_argnames. These are positional-only; "
            f"give their positions in {what}_argnums."
        )
    if nums_given and not names_given:
        keywords = tuple(order[n] for n in positions if 0 <= n < len(order))
    elif names_given and not nums_given:
        positions = tuple(order.index(k) for k in keywords if k in order)
    return positions, keywords


class StaticValue:
    """A static argument as part of a cache key: equal if type and value are."""

    __slots__ = ("_hash", "value")

    def __init__(self, value: Any) -> None:
        try:
            self._hash = hash((type(value), value))
        except TypeError as error:
            raise ValueError(
                "Non-hashable static arguments are not supported. An error occurred while trying to hash an object of type "
                f"{type(value)}, {value!r}. The error was:\nTypeError: {error}\nPass a hashable value (a tuple instead of a list)."
            ) from error
        self.value = value

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StaticValue) or type(self.value) is not type(other.value):
            return False
        try:
            return bool(self.value == other.value)
        except Exception as error:
            raise ValueError(
                f"static arguments should be comparable using __eq__; comparing two of type {type(self.value)} "
                f"raised {type(error).__name__}: {error}"
            ) from error


def argument_names(
    fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], static_nums: Nums
) -> list[str]:
    """A name like ``x`` or ``x['w'][0]`` for each leaf of the dynamic arguments, for error messages."""

    sig = signature_of(fun)
    names: list[str] = []
    order: list[str] = []
    if sig is not None:
        order = _positional(sig)
        extra = next((p.name for p in sig.parameters.values() if p.kind is p.VAR_POSITIONAL), None)
    else:
        extra = None
    for i, arg in enumerate(args):
        if i in static_nums:
            continue
        base = order[i] if i < len(order) else f"{extra}[{i - len(order)}]" if extra else f"args[{i}]"
        names += [base + keystr(path) for path, _ in tree_flatten_with_path(arg)[0]]
    for key in sorted(kwargs):
        names += [key + keystr(path) for path, _ in tree_flatten_with_path(kwargs[key])[0]]
    return names
