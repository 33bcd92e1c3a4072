"""`PartitionSpec`: for each dim of an array, the mesh axes that split it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, SupportsIndex

from shardwise.base import config
from shardwise.base.caches import Interned


class _Unconstrained:
    """The entry that leaves a dim to the partitioner."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> str:
        return "UNCONSTRAINED"


UNCONSTRAINED = _Unconstrained()

_EMPTY: frozenset[Any] = frozenset()


class PartitionSpec(tuple):  # type: ignore[type-arg]
    """Entries None (not split), an axis name, a tuple of names (major first) or `P.UNCONSTRAINED`; immutable.

    Entries are normalised: a tuple of one name is that name, an empty one is None. Nothing is checked against a mesh.
    Under the `seed` dialect a spec equals the plain tuple of its entries and adding gives a tuple; under `latest` it
    equals specs only and adding gives a spec. Equal specs made of names are one object.

    Args:
        *partitions: the entries, for the leading dims.
        unreduced: axes over which the value is a sum not yet taken.
        reduced: axes over which a value's gradient is such a sum.

    Raises:
        TypeError: `unreduced` or `reduced` is no set.
        ValueError: an axis is in two of partitions, `unreduced` and `reduced`, or (`latest`) a tuple is nested.
    """

    UNCONSTRAINED = UNCONSTRAINED

    unreduced: frozenset[Any]
    reduced: frozenset[Any]

    def __new__(
        cls,
        *partitions: Any,
        unreduced: Iterable[Any] = _EMPTY,
        reduced: Iterable[Any] = _EMPTY,
    ) -> PartitionSpec:
        """Find the spec with these entries, or make it."""
        plain = True
        entries = partitions
        for entry in partitions:
            if entry.__class__ is not str and entry is not None and entry is not UNCONSTRAINED:
                entries = tuple([_normalized(entry) for entry in partitions])
                plain = all(_is_plain(entry) for entry in entries)
                break
        if cls is PartitionSpec and plain and unreduced is _EMPTY and reduced is _EMPTY:
            known = _interned.get(entries)
            if known is not None:
                return known
        self = tuple.__new__(cls, entries)
        unreduced, reduced = _checked_sets(entries, unreduced, reduced)
        self.__dict__["unreduced"] = unreduced
        self.__dict__["reduced"] = reduced
        if cls is PartitionSpec and plain and not unreduced and not reduced:
            return _interned.keep(entries, self)
        return self

    def __init_subclass__(cls) -> None:
        if not config.dialect.shardings.spec_is_tuple:
            raise TypeError("PartitionSpec cannot be subclassed; make a function that returns a spec instead.")

    @property
    def partitions(self) -> tuple[Any, ...]:
        """The entries as a plain tuple."""
        return tuple(self)

    def update(
        self,
        partitions: Iterable[Any] | None = None,
        unreduced: Iterable[Any] | None = None,
        reduced: Iterable[Any] | None = None,
    ) -> PartitionSpec:
        """A spec with some parts replaced."""
        return PartitionSpec(
            *(self if partitions is None else partitions),
            unreduced=self.unreduced if unreduced is None else unreduced,
            reduced=self.reduced if reduced is None else reduced,
        )

    def padded(self, ndim: int) -> PartitionSpec:
        """The spec with None appended up to rank `ndim`."""
        missing = ndim - len(self)
        return self.update(partitions=tuple(self) + (None,) * missing) if missing > 0 else self

    def index(self, value: Any, *bounds: SupportsIndex) -> int:
        """Position of the first entry equal to `value`, which is normalised as an entry is."""
        return tuple.index(self, _normalized(value), *bounds)

    def count(self, value: Any) -> int:
        """Number of entries equal to `value`, which is normalised as an entry is."""
        return tuple.count(self, _normalized(value))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, PartitionSpec):
            return tuple.__eq__(self, other) and self.unreduced == other.unreduced and self.reduced == other.reduced
        if config.dialect.shardings.spec_is_tuple and isinstance(other, tuple):
            return tuple.__eq__(self, other) and not self.unreduced and not self.reduced
        return NotImplemented if not isinstance(other, tuple) else False

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    # Inherited on purpose: it hashes like the tuple (seed), and strings keep their own hashes.
    __hash__ = tuple.__hash__

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, tuple):
            return NotImplemented
        if config.dialect.shardings.spec_is_tuple and not self.unreduced and not self.reduced:
            return tuple(self) + tuple(other)
        unreduced, reduced = self.unreduced, self.reduced
        if isinstance(other, PartitionSpec):
            unreduced, reduced = unreduced | other.unreduced, reduced | other.reduced
        return PartitionSpec(*self, *other, unreduced=unreduced, reduced=reduced)

    def __radd__(self, other: Any) -> Any:
        if not isinstance(other, tuple):
            return NotImplemented
        if config.dialect.shardings.spec_is_tuple and not self.unreduced and not self.reduced:
            return other + tuple(self)
        return PartitionSpec(*other, *self, unreduced=self.unreduced, reduced=self.reduced)

    def __repr__(self) -> str:
        inside = tuple.__repr__(tuple(self))[1:-1]
        for label, axes in (("unreduced", self.unreduced), ("reduced", self.reduced)):
            if axes:
                inside = inside.rstrip(",") + (", " if inside else "")
                inside += f"{label}={{{', '.join(repr(axis) for axis in sorted(axes, key=str))}}}"
        return f"{config.dialect.shardings.spec_name}({inside})"

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot assign to field {name!r}: specs are immutable, make one with update().")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete field {name!r}: specs are immutable.")

    def __reduce__(self) -> Any:
        return (_rebuild, (type(self), tuple(self), self.unreduced, self.reduced))

    def __copy__(self) -> PartitionSpec:
        return self

    def __deepcopy__(self, memo: Any) -> PartitionSpec:
        return self


P = PartitionSpec

_interned: Interned[tuple[Any, ...], PartitionSpec] = Interned()


def _rebuild(cls: type[PartitionSpec], entries: tuple[Any, ...], unreduced: Any, reduced: Any) -> PartitionSpec:
    return cls(*entries, unreduced=unreduced, reduced=reduced)


def _normalized(entry: Any) -> Any:
    if not isinstance(entry, (tuple, list)):
        return None if entry.__class__ is dict and not entry else entry
    if not config.dialect.shardings.spec_entries_nest:
        for name in entry:
            if isinstance(name, (tuple, list)):
                raise ValueError(
                    f"A tuple inside PartitionSpec cannot contain a nested tuple: entry {entry!r} contains {name!r}. "
                    "Give one flat tuple of axis names per dim."
                )
    if not entry:
        return None
    return entry[0] if len(entry) == 1 else tuple(entry)


def _is_plain(entry: Any) -> bool:
    """Whether equality of such entries means that they are the same in every respect (1 == True is not)."""
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
