"""Dataclasses whose methods are written on demand do what Python's do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from shardwise.base.lazy_dataclasses import dataclass as lazy

SOURCE = Path(__file__).parents[2] / "src"
OPTIONS: list[dict[str, Any]] = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "eq": False},
    {"eq": False},
    {"frozen": True, "slots": True, "kw_only": True},
    {"frozen": True, "init": False},
    {"frozen": True, "slots": True, "repr": False},
    {"frozen": True, "slots": True, "eq": False, "weakref_slot": True},
]


def _classes(decorate: Any, options: dict[str, Any]) -> list[Any]:
    """Classes of all sorts: a base, one that inherits, one with methods of its own, an empty one."""

    @decorate(**options)
    class Base:
        """A class."""

        a: int
        b: str = "b"
        count: ClassVar[int] = 3
        made: list[int] = field(default_factory=list[int])
        quiet: int = field(default=0, compare=False, repr=False)
        named: float = field(default=1.5, kw_only=True)
        fixed: int = field(default=7, init=False)

    @decorate(**options)
    class Inheriting(Base):
        """Another one."""

        c: tuple[int, ...] = ()

    @decorate(**options)
    class Own:
        """One with methods of its own."""

        a: int = 1

        def __repr__(self) -> str:
            return f"own {self.a}"

        def __eq__(self, other: object) -> bool:
            return self.a % 2 == getattr(other, "a", 0) % 2

    @decorate(**options)
    class Checked:
        """One that checks its fields."""

        a: int = 1

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("negative")

    return [Base, Inheriting, Own, Checked]


def _outcome(call: Any) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def _shown(x: Any) -> str:
    return "plain" if type(x).__repr__ is object.__repr__ else repr(x)


def _told(cls: Any, written: bool) -> list[Any]:
    """All that a class and objects of it say. Not `written`: its `__init__` is not compiled before objects are made."""
    told: list[Any] = [
        str(inspect.signature(cls)) if written else "",
        [f.name for f in dataclasses.fields(cls)],
        cls.__match_args__,
    ]
    told += [
        _outcome(lambda a=a, k=k: cls(*a, **k))
        for a in ((), (1, 2), (1, "b", [2], 3, 4, 5))
        for k in ({}, {"a": 1}, {"b": 2})
    ]
    told[3:] = [t if isinstance(t, tuple) else _outcome(lambda t=t: _shown(t)) for t in told[3:]]
    told.append((cls.__hash__ is None, hasattr(cls, "__dict__"), dataclasses.is_dataclass(cls)))
    made: list[Any] = [
        _outcome(lambda given=given: cls(**given)) for given in ({"a": 1}, {"a": 1, "b": "x"}, {"a": -1}, {"z": 1})
    ]
    objects = [m for m in made if dataclasses.is_dataclass(type(m))]
    told += [m for m in made if not dataclasses.is_dataclass(type(m))]
    for x in objects:
        told.append(_outcome(lambda x=x: _shown(x)))
        told.append(_outcome(lambda x=x: hash(x) == hash(copy.copy(x))))
        told += [_outcome(lambda x=x, y=y: (x == y, x != y)) for y in (*objects, copy.copy(x), 3)]
        told.append(_outcome(lambda x=x: dataclasses.asdict(x)))
        told.append(_outcome(lambda x=x: dataclasses.replace(x, a=5).a))
        told.append(_outcome(lambda x=x: setattr(x, "a", 2)))
        told.append(_outcome(lambda x=x: delattr(x, "a")))
        told.append(_outcome(lambda x=x: x.a))
    return told


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: " ".join(o) or "plain")
def test_as_pythons(options: dict[str, Any]) -> None:
    for ours, theirs in zip(_classes(lazy, options), _classes(dataclasses.dataclass, options), strict=True):
        for written in (False, True):
            assert _told(ours, written) == _told(theirs, written), ours


@lazy(frozen=True, slots=True)
class Pickled:
    """One that a module has."""

    a: int
    b: tuple[int, ...] = (1,)


def test_pickles() -> None:
    x = Pickled(3, (4, 5))
    assert pickle.loads(pickle.dumps(x)) == x == copy.deepcopy(x)


def test_methods_are_written_once_and_on_demand() -> None:
    @lazy(frozen=True)
    class Fresh:
        """A class that nobody has used."""

        a: int = 1

    def written() -> list[str]:
        return [name for name in ("__init__", "__eq__", "__hash__") if type(vars(Fresh)[name]) is type(written)]

    assert written() == []
    hash(Fresh())
    assert written() == ["__hash__"]
    made = [Fresh(i) for i in range(100)]
    assert written() == ["__init__", "__hash__"]
    assert [x.a for x in made] == [*range(100)]


def test_the_library_uses_it() -> None:
    found = subprocess.run(
        [
            "grep",
            "-rnE",
            r"^(from dataclasses import .*\bdataclass\b|@dataclasses\.dataclass)",
            SOURCE,
            "--include=*.py",
        ],
        capture_output=True,
        text=True,
    )
    assert not found.stdout, "import dataclass from shardwise.base.lazy_dataclasses"
