"""`dataclass`, as Python's, whose methods are written when they are first needed.

Python's decorator compiles six functions for a class, which takes 0.4 ms: for a hundred classes a third of the time of our import, and for
those of a room that the first call loads as long as its passes. Here a method is a descriptor that makes the function when somebody asks
for it, and puts it in its place; only an `__init__` that is called often is compiled. `fields`, `replace`, `asdict` and pattern
matching work as on other dataclasses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls=None,
        /,
        *,
        init=True,
        repr=True,
        eq=True,
        frozen=False,
        slots=False,
        kw_only=False,
        weakref_slot=False,
    ):
        """A dataclass with these options of Python's."""

        def decorate(cls):
            new_class = dataclasses.dataclass(
                init=False, repr=False, eq=False, slots=slots, kw_only=kw_only, weakref_slot=weakref_slot
            )(cls)
            new_class.__dataclass_params__.eq = eq
            _complete(new_class, init, repr, eq, frozen, slots)
            return new_class

        return decorate if cls is None else decorate(cls)


class _Unwritten:
    """A method that is not written yet."""

    __slots__ = ("_cls", "_name", "_write")

    def __init__(self, cls: type, name: str, write: Callable[[Any], Callable[..., Any]]) -> None:
        self._cls, self._name, self._write = cls, name, write

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        cls, name = self._cls, self._name
        method: Any = cls.__dict__[name]
        if method is self:  # else another thread was faster
            method = _name_method(self._write(cls), cls, name)
            setattr(cls, name, method)
        return method.__get__(instance, owner)


_FEW = 16  # objects that a class makes before its `__init__` is written


class _UnwrittenInit(_Unwritten):
    """An `__init__` that is not written yet: to compile one takes as long as to fill a hundred objects field by field."""

    __slots__ = ("_calls", "_filler")

    def __init__(self, cls: type, name: str, write: Callable[[Any], Callable[..., Any]]) -> None:
        super().__init__(cls, name, write)
        self._calls = 0
        self._filler: Callable[..., None] | None = None

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        self._calls += 1
        if instance is None or self._calls > _FEW:
            return super().__get__(instance, owner)
        if self._filler is None:
            self._filler = _make_init(self._cls)
        return partial(self._filler, instance)


def _make_init(cls: Any) -> Callable[..., None]:
    """`__init__` of any dataclass; arguments that do not fit are left to the one of the class's own, which says so."""
    fields = dataclasses.fields(cls)
    places = [f.name for f in fields if f.init and not f.kw_only]
    init_names = frozenset(f.name for f in fields if f.init)
    absent, has_check = dataclasses.MISSING, hasattr(cls, "__post_init__")
    assign = object.__setattr__ if cls.__setattr__ is not object.__setattr__ else setattr

    def fill(self: Any, *args: Any, **given: Any) -> None:
        if (
            len(args) > len(places)
            or not init_names.issuperset(given)
            or not given.keys().isdisjoint(places[: len(args)])
        ):
            _init(cls)(self, *args, **given)
            return
        given.update(zip(places, args, strict=False))
        for f in fields:
            name = f.name
            if name in given:
                assign(self, name, given[name])
            elif f.default is not absent:
                assign(self, name, f.default)
            elif f.default_factory is not absent:
                assign(self, name, f.default_factory())
            elif f.init:
                _init(cls)(self, *args, **{k: v for k, v in given.items() if k not in places[: len(args)]})
                return
        if has_check:
            self.__post_init__()

    return fill


def _complete(cls: Any, init: bool, shown: bool, eq: bool, frozen: bool, slots: bool) -> None:
    """Give a class the methods that it has not written itself."""
    own = cls.__dict__
    has_hash = "__hash__" in own and not (own["__hash__"] is None and "__eq__" in own)
    wanted_methods = {"__init__": init, "__repr__": shown, "__eq__": eq, "__hash__": eq and frozen and not has_hash}
    for name, is_wanted in wanted_methods.items():
        if is_wanted and (name not in own or name == "__hash__"):
            setattr(cls, name, (_UnwrittenInit if name == "__init__" else _Unwritten)(cls, name, _WRITERS[name]))
    if eq and not frozen and not has_hash:
        cls.__hash__ = None
    if not frozen:
        return
    names = frozenset(cls.__dataclass_fields__)

    def refuse_value(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_deletion(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    for name, method in (("__setattr__", refuse_value), ("__delattr__", refuse_deletion)):
        if name in own:
            raise TypeError(f"Cannot overwrite attribute {name} in class {cls.__name__}")
        setattr(cls, name, method)
    if slots:  # pickle would assign
        for name, method in (("__getstate__", _state), ("__setstate__", _set_state)):
            if name not in own:
                setattr(cls, name, method)


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for f, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)


# -- methods -------------------------------------------------------------------------------------------------------------


class _FactoryDefault:
    """The default of a field whose value a function makes, as signatures show it."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY_MARK = _FactoryDefault()


def _name_method(method: Any, cls: type, name: str) -> Any:
    method.__name__, method.__qualname__, method.__module__ = name, f"{cls.__qualname__}.{name}", cls.__module__
    return method


def _init(cls: Any) -> Callable[..., Any]:
    namespace: dict[str, Any] = {"_set": object.__setattr__, "_made": _FACTORY_MARK}
    places: list[str] = []
    parameters: list[str] = []
    body: list[str] = []
    is_frozen = cls.__setattr__ is not object.__setattr__
    for f in dataclasses.fields(cls):
        value, default = f.name, ""
        if f.default_factory is not dataclasses.MISSING:
            namespace[f"_make_{f.name}"] = f.default_factory
            default = "=_made"
            value = f"_make_{f.name}() if {f.name} is _made else {f.name}" if f.init else f"_make_{f.name}()"
        elif f.default is not dataclasses.MISSING:
            namespace[f"_default_{f.name}"] = f.default
            default = f"=_default_{f.name}"
            value = f.name if f.init else f"_default_{f.name}"
        elif not f.init:
            continue
        if f.init:
            (parameters if f.kw_only else places).append(f.name + default)
        body.append(f"_set(self, {f.name!r}, {value})" if is_frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    takes = ", ".join(["self", *places, *(["*", *parameters] if parameters else [])])
    exec("\n    ".join([f"def __init__({takes}):", *(body or ["pass"])]), namespace)
    method = _name_method(namespace["__init__"], cls, "__init__")
    method.__annotations__ = {f.name: f.type for f in dataclasses.fields(cls) if f.init} | {"return": None}
    return method


def _repr(cls: Any) -> Callable[..., Any]:
    names = [f.name for f in dataclasses.fields(cls) if f.repr]

    @recursive_repr()
    def show_fields(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join([f'{n}={getattr(self, n)!r}' for n in names])})"

    return show_fields


def _values(names: list[str]) -> Callable[[Any], Any]:
    """A function that gives the values of these fields."""
    return attrgetter(*names) if names else lambda _: ()


def _eq(cls: Any) -> Callable[..., Any]:
    names = [f.name for f in dataclasses.fields(cls) if f.compare]
    values, one = _values(names), len(names) == 1

    def equal(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        # Of a tuple the elements are first compared by identity.
        return (values(self),) == (values(other),) if one else values(self) == values(other)

    return equal


def _hash(cls: Any) -> Callable[..., Any]:
    names = [f.name for f in dataclasses.fields(cls) if (f.compare if f.hash is None else f.hash)]
    values = _values(names)
    if len(names) == 1:
        return lambda self: hash((values(self),))
    return lambda self: hash(values(self))


_WRITERS = {"__init__": _init, "__repr__": _repr, "__eq__": _eq, "__hash__": _hash}
