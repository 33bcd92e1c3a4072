"""`PartitionSpec`: for each dim of an array, the mesh axes that split it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from shardwise.base import config
from shardwise.base.caches import InternTable


class _UnconstrainedEntry:
    """The entry that leaves a dim to the partitioner."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> str:
        return "UNCONSTRAINED"


UNCONSTRAINED = _UnconstrainedEntry()

_EMPTY: frozenset[Any] = frozenset()


class PartitionSpec:
    """Entries None (not split), an axis name, a tuple of names (major first) or `P.UNCONSTRAINED`; immutable.

    Entries are normalised: a tuple of one name is that name, an empty one is None. Nothing is checked against a mesh.
    Under the dialect 0.5 a spec is a tuple of its entries, and compares and adds as one. Under 0.10 it is no tuple: it
    equals only specs, adding gives a spec, and the entries of one with `unreduced` or `reduced` axes are read only by
    `partitions`. Specs of both dialects with equal parts are equal, and `isinstance(x, PartitionSpec)` holds for both. Equal
    specs made of names are one object.

    Args:
        *partitions: the entries, for the leading dims.
        unreduced: axes over which the value is a pending sum.
        reduced: axes over which the value's gradient is a pending sum.

    Raises:
        TypeError: `unreduced` or `reduced` is no set, or (0.10) an entry cannot be hashed.
        ValueError: an axis is in two of partitions, `unreduced` and `reduced`, or (0.10) a tuple is nested.
    """

    UNCONSTRAINED = UNCONSTRAINED
    _shown_as = "P"

    partitions: tuple[Any, ...]
    """The entries."""
    unreduced: frozenset[Any]
    reduced: frozenset[Any]

    def __new__(
        cls,
        *partitions: Any,
        unreduced: Iterable[Any] = _EMPTY,
        reduced: Iterable[Any] = _EMPTY,
    ) -> PartitionSpec:
        """Find the spec with these entries, or make it."""
        return cls._make_spec(config.dialect.shardings.spec_is_tuple, partitions, unreduced, reduced)

    @staticmethod
    def _make_spec(
        is_tuple: bool, partitions: tuple[Any, ...], unreduced: Iterable[Any] = _EMPTY, reduced: Iterable[Any] = _EMPTY
    ) -> PartitionSpec:
        plain = True
        entries = partitions
        for entry in partitions:
            if (entry.__class__ is not str or not entry) and entry is not None and entry is not UNCONSTRAINED:
                entries = tuple([_normalize_entry(entry) for entry in partitions])
                plain = all(_is_plain(entry) for entry in entries)
                break
        table = _tuples if is_tuple else _specs
        if plain and unreduced is _EMPTY and reduced is _EMPTY:
            known_spec = table.get(entries)
            if known_spec is not None:
                return known_spec
        if not plain and not is_tuple:
            hash(entries)  # fails here, close to the code that writes the spec
        unreduced, reduced = _checked_sets(entries, unreduced, reduced)
        self: PartitionSpec = tuple.__new__(TupleSpec, entries) if is_tuple else object.__new__(PartitionSpec)
        self.__dict__.update(partitions=entries, unreduced=unreduced, reduced=reduced)
        if not plain:
            return self
        return table.keep((entries, unreduced, reduced) if unreduced or reduced else entries, self)

    def __init_subclass__(cls) -> None:
        if not config.dialect.shardings.spec_is_tuple and cls.__module__ != __name__:
            raise TypeError("PartitionSpec cannot be subclassed; make a function that returns a spec instead.")

    def update(
        self,
        partitions: Iterable[Any] | None = None,
        unreduced: Iterable[Any] | None = None,
        reduced: Iterable[Any] | None = None,
    ) -> PartitionSpec:
        """A spec with some parts replaced; a tuple only if this one is, and specs of the current dialect are."""
        return self._make_spec(
            isinstance(self, tuple) and config.dialect.shardings.spec_is_tuple,
            self.partitions if partitions is None else tuple(partitions),
            self.unreduced if unreduced is None else unreduced,
            self.reduced if reduced is None else reduced,
        )

    def pad_to_rank(self, ndim: int) -> PartitionSpec:
        """The spec with None appended up to rank `ndim`."""
        missing_count = ndim - len(self.partitions)
        return self.update(partitions=self.partitions + (None,) * missing_count) if missing_count > 0 else self

    def index(self, value: Any) -> int:
        """Position of the first entry equal to `value`; `value` is normalised like an entry."""
        return self.partitions.index(_normalize_entry(value))

    def count(self, value: Any) -> int:
        """Number of entries equal to `value`; `value` is normalised like an entry."""
        return self.partitions.count(_normalize_entry(value))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, PartitionSpec):
            return NotImplemented
        return (
            self.partitions == other.partitions and self.unreduced == other.unreduced and self.reduced == other.reduced
        )

    def __hash__(self) -> int:
        return hash(self.partitions)  # equal to the hash of the equal spec of the other dialect

    def __len__(self) -> int:
        return len(self.partitions)

    def __iter__(self) -> Iterator[Any]:
        self._check_plain("iterated or unpacked", "*spec.partitions")
        return iter(self.partitions)

    def __getitem__(self, i: Any) -> Any:
        self._check_plain("indexed", "spec.partitions[...]")
        return self.partitions[i]

    def _check_plain(self, use: str, instead: str) -> None:
        if self.unreduced or self.reduced:
            raise ValueError(
                f"{self} cannot be {use}: its entries alone would lose the unreduced and reduced axes. Use {instead}."
            )

    def __add__(self, other: Any) -> PartitionSpec:
        if isinstance(other, PartitionSpec):
            return self._make_spec(
                isinstance(self, tuple),
                self.partitions + other.partitions,
                self.unreduced | other.unreduced,
                self.reduced | other.reduced,
            )
        self._check_addend(other)
        return self._make_spec(isinstance(self, tuple), (*self.partitions, *other))

    def __radd__(self, other: Any) -> PartitionSpec:
        self._check_addend(other)
        return self._make_spec(isinstance(self, tuple), (*other, *self.partitions))

    def _check_addend(self, other: Any) -> None:
        if not isinstance(other, tuple):
            raise NotImplementedError(
                f"{self} cannot be added to {other!r} of type {type(other).__name__}. Pass a PartitionSpec, or a tuple of entries."
            )
        if self.unreduced or self.reduced:
            raise TypeError(
                f"unreduced in `__add__` of PartitionSpec: {self} has unreduced or reduced axes, so that it "
                f"cannot be added to the tuple {other!r}; add a PartitionSpec."
            )

    def __repr__(self) -> str:
        inside = tuple.__repr__(self.partitions)[1:-1]
        for label, axes in (("unreduced", self.unreduced), ("reduced", self.reduced)):
            if axes:
                inside = inside.rstrip(",") + (", " if inside else "")
                inside += f"{label}={{{', '.join(repr(axis) for axis in sorted(axes, key=str))}}}"
        return f"{self._shown_as}({inside})"

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"cannot assign to field {name!r}: specs are immutable, make one with update().")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"cannot delete field {name!r}: specs are immutable.")

    def __reduce__(self) -> Any:
        return (_rebuild, (self.partitions, self.unreduced, self.reduced))

    def __copy__(self) -> PartitionSpec:
        return self

    def __deepcopy__(self, memo: Any) -> PartitionSpec:
        return self


P = PartitionSpec


class TupleSpec(tuple[Any, ...], PartitionSpec):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A `PartitionSpec` of the dialect 0.5: the tuple of its entries."""

    _shown_as = "PartitionSpec"

    __new__ = PartitionSpec.__new__  # pyright: ignore[reportAssignmentType]
    __hash__ = tuple.__hash__  # strings keep their own hashes
    __repr__ = PartitionSpec.__repr__
    index = PartitionSpec.index  # pyright: ignore[reportAssignmentType]
    count = PartitionSpec.count  # pyright: ignore[reportAssignmentType]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, PartitionSpec):
            return PartitionSpec.__eq__(self, other)
        if not isinstance(other, tuple) or self.unreduced or self.reduced:
            return False
        return self.partitions == other or self.partitions == tuple([_normalize_entry(entry) for entry in other])

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, tuple):
            return NotImplemented
        return PartitionSpec.__add__(self, other) if self.unreduced or self.reduced else self.partitions + tuple(other)

    def __radd__(self, other: Any) -> Any:
        if not isinstance(other, tuple):
            return NotImplemented
        return PartitionSpec.__radd__(self, other) if self.unreduced or self.reduced else other + self.partitions


TupleSpec.__name__ = TupleSpec.__qualname__ = PartitionSpec.__name__


class _Todays(type):
    """The type of a name for `PartitionSpec` whose calls make specs of JAX 0.10."""

    def __call__(cls, *partitions: Any, **sets: Any) -> Any:
        return PartitionSpec._make_spec(False, partitions, **sets)

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, PartitionSpec)

    def __subclasscheck__(cls, c: type) -> bool:
        return issubclass(c, PartitionSpec)


class TodaysSpec(PartitionSpec, metaclass=_Todays):
    """`jax.P`, which only JAX 0.10 has, under the dialect 0.5: it makes specs that are no tuples."""


# By entries, with the unreduced and reduced axes if there are any.
_tuples: InternTable[tuple[Any, ...], PartitionSpec] = InternTable()
_specs: InternTable[tuple[Any, ...], PartitionSpec] = InternTable()


def in_dialect(spec: PartitionSpec) -> PartitionSpec:
    """The equal spec of the current dialect."""
    if spec.__class__ is spec_class():
        return spec
    return PartitionSpec(*spec.partitions, unreduced=spec.unreduced, reduced=spec.reduced)


def spec_class() -> type[PartitionSpec]:
    """The class of the specs that `PartitionSpec` makes under the current dialect."""
    return TupleSpec if config.dialect.shardings.spec_is_tuple else PartitionSpec


def _rebuild(entries: tuple[Any, ...], unreduced: Any, reduced: Any) -> PartitionSpec:
    return PartitionSpec(*entries, unreduced=unreduced, reduced=reduced)


def _normalize_entry(entry: Any) -> Any:
    if not entry:
        return None
    if not isinstance(entry, (tuple, list)):
        return entry
    if not config.dialect.shardings.spec_entries_nest:
        for name in entry:
            if isinstance(name, (tuple, list)):
                raise ValueError(
                    f"A tuple inside PartitionSpec cannot contain a nested tuple: entry {entry!r} contains {name!r}. "
                    "Give one flat tuple of axis names per dim."
                )
    return entry[0] if len(entry) == 1 else tuple(entry)


def _is_plain(entry: Any) -> bool:
    """Whether equal entries of this kind are also identical in type (1 == True are not)."""
    if entry.__class__ is tuple:
        return all(name.__class__ is str for name in entry)
    return entry is None or entry.__class__ is str or entry is UNCONSTRAINED


def _checked_sets(entries: tuple[Any, ...], unreduced: Any, reduced: Any) -> tuple[frozenset[Any], frozenset[Any]]:
    if unreduced is _EMPTY and reduced is _EMPTY:
        return _EMPTY, _EMPTY
    for label, axes in (("unreduced", unreduced), ("reduced", reduced)):
        if not isinstance(axes, (set, frozenset)):
            raise TypeError(f"PartitionSpec takes {label}= as a set or frozenset of axis names, not {axes!r}.")
        if None in axes:
            raise ValueError(f"{label} cannot contain None: all its elements name mesh axes. Got {label}={axes!r}.")
    both = unreduced & reduced
    if both:
        raise ValueError(f"unreduced and reduced cannot overlap: {sorted(both, key=str)} is in both.")
    used = set(spec_axes(entries))
    for label, axes in (("unreduced", unreduced), ("reduced", reduced)):
        if used & axes:
            raise ValueError(
                f"partitions cannot overlap with {label} axes: {sorted(used & axes, key=str)} is in partitions "
                f"{entries} and in {label}={set(axes)}."
            )
    return frozenset(unreduced), frozenset(reduced)


def entry_axes(entry: Any) -> tuple[Any, ...]:
    """The axes that one entry names, major first."""
    if entry is None or entry is UNCONSTRAINED:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)


def spec_axes(entries: Iterable[Any]) -> tuple[Any, ...]:
    """All axes that the entries name, in order."""
    return tuple(axis for entry in entries for axis in entry_axes(entry))
