"""`Ref`: a holder of an array, which functions write."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.engine.array import ArrayImpl
from shardwise.ir import Array, ShapedArray, ShownTrace, bind, current_trace, is_eager, tracing
from shardwise.ir.references import Reference
from shardwise.ops.elementwise.casts import convert, stop_gradient
from shardwise.ops.indexing.reference_ops import get_p, swap_p
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ref.places import AbstractRef
from shardwise.ref.views import ViewedPlace


def _alive(value: Array) -> Array:
    """The array; RuntimeError if it was deleted."""
    if isinstance(value, ArrayImpl):
        value.devices()
    return value


class Ref(Reference, ViewedPlace):
    """A mutable reference to an array."""

    __slots__ = ("__dict__", "_frozen", "_shared")
    __hash__ = object.__hash__

    def __init__(self, value: Any) -> None:
        super().__init__(_alive(as_array(as_value(value))))
        self._frozen = False
        self._shared = True  # others may have the same array: it is copied before a compiled function writes over it

    @classmethod
    def of_program(cls, value: Array) -> Ref:
        """The Ref for which `value` stands in a program that is traced to be shown."""
        self = super().of_program(value)
        assert isinstance(self, Ref)
        self._frozen = False
        self._shared = True
        return self

    @property
    def aval(self) -> Any:
        """The type of the place."""
        return AbstractRef(self.inner_aval())

    def inner_aval(self) -> ShapedArray:
        """The type of the array."""
        place = None if current_trace() in self._frames else self.stand_in()
        return self.held().aval if place is None else place.aval.inner  # type: ignore[attr-defined]

    def shown_place(self) -> tuple[Array, tuple[Any, ...]] | None:
        """The Ref's stand-in in a program recorded for printing; None: its array."""
        if current_trace() in self._frames:
            return None
        self._check_kept()
        value = self.stand_in()
        return None if value is None else (value, ())

    def _check_kept(self) -> None:
        if self._frozen:
            raise ValueError("the Ref was frozen or freed; its array is what freeze returned.")

    def held(self) -> Array:
        """The array; ValueError once it was given up."""
        self._check_kept()
        frame = self._frames.get(current_trace())
        if frame is not None:
            return frame
        value = self.stand_in()
        if value is None:
            return super().held()
        return bind(get_p, value, index=(), shape=value.aval.shape)

    def store(self, value: Array) -> None:
        """Hold `value` from now on."""
        trace: Any = current_trace()
        place = None if trace in self._frames else self.stand_in()
        if place is None:
            super().store(value)
            return
        while type(trace) is not ShownTrace:
            value = trace.leave_reference(value, self)
            trace = self._outside(trace)
        with tracing(trace):
            bind(swap_p, place, value, index=(), shape=place.aval.shape)

    def put(self, value: Array) -> None:
        """Hold `value`, which others may have as well. RuntimeError if it was deleted."""
        self.store(_alive(value))
        self._shared = True

    def share(self) -> None:
        """Note that the array is not the Ref's alone."""
        self._shared = True

    def unsafe_buffer_pointer(self) -> int:
        """The address of the array's data; ValueError where several devices hold it."""
        return self.held().unsafe_buffer_pointer()

    def release(self) -> Array | None:
        """Give up the array and return it."""
        value = self.held() if self.shown_place() is None else None
        self._frozen = True
        return value

    def take_array(self) -> Array:
        """The array, for a compiled function that writes over it."""
        value = self.held()
        return as_array(convert(jnp.copy(value), value.dtype, value.aval.weak_type)) if self._shared else value

    def replace(self, value: Array) -> None:
        """Hold what a compiled function made."""
        self.store(value)
        if is_eager():  # what a trace holds says nothing of the array that is there when the program runs
            self._shared = False

    def __repr__(self) -> str:
        if self._frozen:
            return "Ref(frozen)"
        if self._value is not None:
            return f"Ref({self.aval})"
        value = self.held()
        return repr(value).replace("Array(", "Ref(", 1) if isinstance(value, ArrayImpl) else f"Ref({value})"


class ConstantRef(Ref):
    """A Ref that no derivative goes through: it drops the tangents of values that are written to it."""

    __slots__ = ()

    def __init__(self, value: Any) -> None:
        super().__init__(stop_gradient(value))

    def store(self, value: Array) -> None:
        """Hold `value`, without tangents, from now on."""
        super().store(stop_gradient(value))
