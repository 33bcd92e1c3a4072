"""Mutable references while functions are traced: which array a reference holds at each trace.

A reference has a *frame*, an array, at the trace that made it, and at each trace whose program takes its array as an input. Code traced
inside reads the frame of the nearest trace around it. A write goes to that frame, too, through transforms that run ops at once; the
program of a trace between them would not say it. Such a trace ends with `UndeclaredReferenceError`; then `with_references` traces again
with the references' arrays as inputs and results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from shardwise.base.config import Setting
from shardwise.base.tree import register_pytree_node, tree_map
from shardwise.ir.program import Program
from shardwise.ir.recording import ProgramTrace, ShownTrace, recording_trace, trace_program
from shardwise.ir.showing import SHOWING
from shardwise.ir.trace import Trace, current_trace, eager_trace, tracing
from shardwise.ir.types import ReferenceType, ShapedArray
from shardwise.ir.value import Array

# Whether compiled functions are traced for the very references among their arguments, whose arrays they take otherwise.
BY_IDENTITY: Setting[bool] = Setting("references_by_identity", False)


# Traces that run ops at once, from which a call on values alone has stepped out to the traces around them.
STEPPED_OUT: Setting[tuple[Any, ...]] = Setting("stepped_out_traces", (), traced=False)


# The record of a call that is traced again with more references: `UndeclaredReferenceError.recorded`, or its catcher's form of that.
RECORDED_CALL: Setting[Any] = Setting("recorded_before", None, traced=False)


class UndeclaredReferenceError(NotImplementedError):
    """A traced function uses references that are no inputs of its program.

    `recorded` saves tracing the function again for the call with the references: its trace, program and captured values. The references'
    arrays are the last inputs of the program, and their last arrays its last results.
    """

    def __init__(self, references: Sequence[Reference], recorded: Any = None) -> None:
        super().__init__(
            "a function that is traced here by itself writes a Ref that it closes over: pass the array, ref[...], and return what "
            "becomes of it."
        )
        self.references = tuple(references)
        self.recorded = recorded


class EndedReferenceError(ValueError):
    """A reference is used after the function that made it, or got it as an argument, had ended."""

    def __init__(self) -> None:
        super().__init__(
            "a Ref was used after the function that made it, or got it as an argument, had ended. Return its array, ref[...]."
        )


class Reference:
    """A holder of an array that functions may replace."""

    __slots__ = ("_frames", "_stands", "_value")

    @property
    def aval(self) -> Any:
        """The type of the place."""
        return self.held().aval

    def __init__(self, value: Array) -> None:
        self._frames: dict[Trace, Array] = {current_trace(): value}
        # Its value in the program that made it, of programs that are traced to be shown.
        self._value: Array | None = None
        self._stands: ReferenceValue | None = None

    @classmethod
    def of_program(cls, value: Array) -> Reference:
        """The reference for which `value` stands in a program that is traced to be shown."""
        self = object.__new__(cls)
        self._frames = {}
        self._value = value
        self._stands = None
        return self

    def stand_in(self) -> Array | None:
        """The tracer of the reference in the program that is traced now to be shown, if that is no array of its own."""
        if not SHOWING.get():
            return self._value
        trace: Any = current_trace()
        while trace is not None and trace not in self._frames:
            if isinstance(trace, ShownTrace):
                if self._value is not None:
                    return self._value
                if self._stands is None:
                    self._stands = ReferenceValue(self)
                return self._stands
            trace = getattr(trace, "parent", None)
        return None

    def held(self) -> Array:
        """The array, as seen from the current trace."""
        trace: Any = current_trace()
        frame = self._frames.get(trace)
        if frame is not None:
            return frame
        inner_traces: list[ProgramTrace] = []
        while (frame := self._array_at(trace)) is None:
            if _records_all(trace):
                inner_traces.append(trace)
            trace = self._outside(trace)
        for inner in inner_traces:
            inner.used_references.setdefault(self, False)
            if inner.declares_reads:
                return self._enter_trace(inner, frame)
        return frame

    def _enter_trace(self, trace: ProgramTrace, outer: Array) -> Array:
        """The array as an input of the program of `trace`; `outer` is the one around it."""
        self._frames[trace] = trace.adopted[self] = trace.new_arg(outer.aval)
        return self._frames[trace]

    def _around(self, trace: Any) -> Array:
        """The array at the nearest trace around this one."""
        while (array_found := self._array_at(trace)) is None:
            trace = self._outside(trace)
        return array_found

    def store(self, value: Array) -> None:
        """Hold `value` from now on."""
        trace: Any = current_trace()
        if trace in self._frames:
            self._frames[trace] = value
            return
        while self._array_at(trace) is None:
            if _records_all(trace):
                outer = self._around(trace)
                trace.used_references[self] = True
                if trace.declares_reads:
                    self._enter_trace(trace, outer)
                self._frames[trace] = value
                return
            value = trace.leave_reference(value, self)
            trace = self._outside(trace)
        self._frames[self._trace_left_for(trace) or trace] = value

    def _trace_left_for(self, trace: Any) -> Trace | None:
        """The trace with an array of the reference from which a call has stepped out to `trace`."""
        traces_left = STEPPED_OUT.get()
        return (
            next((t for t in reversed(traces_left) if t.parent is trace and t in self._frames), None)
            if traces_left
            else None
        )

    def _array_at(self, trace: Any) -> Array | None:
        """The array at `trace`, or at one from which a call has stepped out to it."""
        traces_left = self._trace_left_for(trace)
        return self._frames.get(trace if traces_left is None else traces_left)

    @property
    def has_ended(self) -> bool:
        """Whether no array of it is seen from the current trace."""
        if self._value is not None:
            return False
        trace: Any = current_trace()
        while trace is not None:
            if self._array_at(trace) is not None:
                return False
            trace = getattr(trace, "parent", None)
        return True

    @property
    def made_eagerly(self) -> bool:
        """Whether it was made outside of traced functions."""
        return self._value is None and next(iter(self._frames)) is eager_trace()

    def take_array(self) -> Array:
        """The array, for a function that may overwrite its memory: nobody else uses the array."""
        raise NotImplementedError

    def replace(self, value: Array) -> None:
        """Hold `value` from now on; nobody else uses it."""
        raise NotImplementedError

    def another(self, value: Array) -> Reference:
        """A new reference of this kind."""
        return type(self)(value)

    def _outside(self, trace: Any) -> Trace:
        """The trace around this one."""
        outer = getattr(trace, "parent", None)
        if outer is None:
            raise EndedReferenceError
        return outer

    def return_error(self, function: str, kind: str, path: str = "") -> ValueError:
        """The error of a function, traced for a transform, that returns the reference, at a path of its results."""
        at = f" at output tree path result{path}" if path else ""
        return ValueError(
            f"function {function} traced for {kind} returned a mutable array reference of type {self.aval}{at}, but mutable array "
            "references cannot be returned. Return its array, ref[...]."
        )

    def undeclared_error(self, references: Sequence[Reference], recorded: Any) -> UndeclaredReferenceError:
        """The error of a program that uses these references."""
        return UndeclaredReferenceError(references, recorded)

    def leave(self, trace: Trace) -> Array | None:
        """Forget the array at a trace that has ended, and return it."""
        return self._frames.pop(trace, None)

    def exchange(self, value: Array | None) -> Array | None:
        """Set, or for None drop, the frame of the current trace; gives the one before."""
        trace = current_trace()
        before = self._frames.pop(trace, None)
        if value is not None:
            self._frames[trace] = value
        return before


class ReferenceValue(Array):
    """A reference as a captured value of a program that is traced to be shown."""

    __slots__ = ("aval", "reference")

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        with tracing(eager_trace() if reference.made_eagerly else current_trace()):
            self.aval = ReferenceType(Reference.held(reference).aval)


class ReferenceView:
    """A part of a reference, or another form of it."""

    __slots__ = ()

    @property
    def root(self) -> Reference:
        """The reference."""
        raise NotImplementedError

    def take_apart(self) -> tuple[Callable[[Any, Sequence[Any]], Any], list[Any]]:
        """A hashable constructor of such views, from a reference and arrays, and the arrays of this view."""
        raise NotImplementedError


class OpenView:
    """A view as an argument: its reference and the arrays in its indices are leaves."""

    __slots__ = ("again", "parts")

    def __init__(self, again: Callable[[Any, Sequence[Any]], Any], parts: Sequence[Any]) -> None:
        self.again = again
        self.parts = parts


register_pytree_node(OpenView, lambda v: (tuple(v.parts), v.again), lambda again, parts: OpenView(again, tuple(parts)))


def open_views(tree: Any) -> Any:
    """A tree with an `OpenView` in place of each view."""

    def of(x: Any) -> Any:
        if not isinstance(x, ReferenceView):
            return x
        again, arrays = x.take_apart()
        return OpenView(again, [x.root, *arrays])

    return tree_map(of, tree)


def closed_views(tree: Any) -> Any:
    """The arguments of `open_views`, made of the references and arrays of now."""
    is_open: Callable[[Any], bool] = lambda x: isinstance(x, OpenView)  # noqa: E731
    return tree_map(lambda x: x.again(x.parts[0], x.parts[1:]) if is_open(x) else x, tree, is_leaf=is_open)


def refuse_views(leaves: Sequence[Any], function: str) -> None:
    """TypeError if views of references are among arguments that `function` takes apart along a dim."""
    if any(isinstance(x, ReferenceView) for x in leaves):
        raise TypeError(
            f"TransformedRefs are not allowed as arguments of functions under {function}: one is a view of a Ref, of which it cannot "
            "take elements. Pass the Ref, and take the view inside."
        )


def _records_all(trace: Any) -> bool:
    """Whether the ops of `trace` run later, as those of a program, which would have to give the reference's last array."""
    return isinstance(trace, ProgramTrace) and not trace.is_linear


def is_recorded() -> bool:
    """Whether what runs now becomes part of a program."""
    trace: Any = current_trace()
    while trace is not None and not _records_all(trace):
        trace = getattr(trace, "parent", None)
    return trace is not None


def is_reference(x: Any) -> bool:
    """Whether a leaf is a reference."""
    return isinstance(x, Reference)


def shows_reference(x: Any) -> bool:
    """Whether a leaf is a reference or a view of one."""
    return isinstance(x, (Reference, ReferenceView))


def root_of(x: Any) -> Reference:
    """The reference that a leaf is, or of which it is a view."""
    return x.root if isinstance(x, ReferenceView) else x


def over_references(fun: Callable[..., Any], rebuilt: Callable[[Any], Any]) -> Callable[..., Any]:
    """``fun(*args)`` for arguments without their references, which `rebuilt` puts back."""
    return functools.wraps(fun, updated=())(lambda *args: fun(*rebuilt(args)))


@contextmanager
def hold_references(references: Sequence[Reference], values: Sequence[Array]) -> Generator[None]:
    """Context in which the references hold `values` at the current trace."""
    before = [r.exchange(v) for r, v in zip(references, values, strict=True)]
    try:
        yield
    finally:
        for r, v in zip(references, before, strict=True):
            r.exchange(v)


class ProxiedReferences:
    """References that others stand for while a function is traced: writes to those go to these, and no others do."""

    __slots__ = ("_references", "_written")

    def __init__(self, references: Sequence[Reference]) -> None:
        self._references = references
        self._written: set[int] = set()

    def run(self, own: Sequence[Reference], call: Callable[[], Any]) -> tuple[list[Array], Any]:
        """The last arrays of `own`, which stand for the references, and the result of a call that may write them."""
        first = [r.held() for r in own]
        result = call()
        last = [r.held() for r in own]
        self._written.update(i for i, (a, b) in enumerate(zip(first, last, strict=True)) if a is not b)
        return last, result

    def store(self, last: Sequence[Array]) -> None:
        """Store the arrays that `run` returned, in the references that were written: transforms return the arrays of the others, too."""
        for i, (reference, value) in enumerate(zip(self._references, last, strict=True)):
            if i in self._written:
                reference.store(value)


def over_state(fun: Callable[..., Any], references: Sequence[Reference]) -> Callable[..., Any]:
    """``fun(*args)`` as a function of the references' arrays, too: ``(arrays, *args) -> (last arrays, result)``."""

    def with_state(values: Sequence[Array], *args: Any) -> tuple[list[Array], Any]:
        with hold_references(references, values):
            result = fun(*args)
            return [r.held() for r in references], result

    with_state.__name__ = getattr(fun, "__name__", "function")
    return with_state


def call_closing_over(
    closed: Sequence[Reference], call: Callable[[Sequence[Reference]], Any], recorded: Any = None
) -> Any:
    """``call(closed)``, with more references where the function that it traces closes over them. `recorded`: see `RECORDED_CALL`."""
    while True:
        try:
            with RECORDED_CALL.override(recorded):
                return call(closed)
        except UndeclaredReferenceError as error:
            new = [r for r in error.references if not any(r is c for c in closed)]
            if not new:
                raise
            closed, recorded = [*closed, *new], error.recorded


def trace_with_state(
    fun: Callable[..., Sequence[Any]], types: Sequence[ShapedArray], name: str, closed: Sequence[Reference] = ()
) -> tuple[Program, list[Any], tuple[Reference, ...]]:
    """`trace_program` of a function that uses references; gives these, too: `closed` and those that it was found to use.

    Their arrays are the last inputs of the program, and their last arrays its last results.
    """

    def call(references: Sequence[Reference]) -> tuple[Program, list[Any], tuple[Reference, ...]]:
        def with_state(*values: Any) -> list[Any]:
            with hold_references(references, values[len(types) :]):
                return [*fun(*values[: len(types)]), *[r.held() for r in references]]

        trace = recording_trace(name)
        trace.declares_reads = True
        try:
            program, consts = trace_program(
                with_state, [*types, *[r.held().aval for r in references]], name, trace=trace
            )
        except UndeclaredReferenceError as error:
            if error.recorded is None or error.recorded[0] is not trace:
                raise
            _, program, consts = error.recorded
            references = [*references, *error.references]
        return program, consts, tuple(references)

    return call_closing_over(closed, call)


def with_references(
    run: Callable[[Sequence[Reference]], tuple[Sequence[Array], Any]], first: Sequence[Reference] = ()
) -> Any:
    """The result of ``run(references)``, a call that traces a function. It gives the references' last arrays and a result.

    It begins with the references `first`. Where the traced function writes others, it runs once more with those.
    """

    def call(references: Sequence[Reference]) -> Any:
        last, result = run(references)
        return references, last, result

    references, last, result = call_closing_over(first, call)
    for r, value in zip(references, last, strict=True):
        if value is not r.held():
            r.store(value)
    return result


def written_from_vmap(reference: Any) -> Exception:
    """The error of a write under vmap to a reference from outside."""
    return Exception(
        f"performing a set/swap or addupdate operation with vmapped value on an unbatched array reference of type {reference.aval}. Move "
        "the array reference to be an argument to the vmapped function?"
    )


def written_with_tangent(reference: Any) -> Exception:
    """The error of a write of a differentiated value to a reference from outside."""
    return Exception(
        "performing a set/swap operation with a differentiated value on a non-differentiated array reference of type "
        f"{reference.aval}. Move the array reference to be an argument of the differentiated function? Or write "
        "lax.stop_gradient(value)."
    )
