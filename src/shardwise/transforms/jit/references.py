"""Mutable references as arguments of compiled functions: they enter as arrays, and their last values are written back.

In: arguments with `Reference` leaves. Out: the same arguments with the arrays that the references hold, for a function that wraps
them in references again, calls the user's function, and returns its results together with the references' last values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from shardwise.base.caches import Bounded
from shardwise.base.config import context_token
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tree import PyTreeDef, tree_flatten, tree_leaves, tree_map, tree_structure, tree_unflatten
from shardwise.base.treeclass import register_pytree_with_keys
from shardwise.base.wrapping import name_of
from shardwise.engine.array import ArrayImpl
from shardwise.ir import Array, Program, ShapedArray, is_eager
from shardwise.ir.reference_arguments import TracedArguments, check_distinct
from shardwise.ir.references import (
    Reference,
    UndeclaredReferenceError,
    closed_views,
    hold_references,
    is_reference,
    open_views,
)
from shardwise.sharding import Sharding
from shardwise.transforms.jit.jit_shardings import UNSPECIFIED
from shardwise.transforms.jit.traced_call import TracedCall
from shardwise.transforms.tracing import ArgSelection, BoundCall, from_beginning


class ReferenceArgument(NotImplementedError):
    """An argument holds a reference."""

    def __init__(self) -> None:
        super().__init__("make_jaxpr takes no Ref. Pass the array, ref[...], and return what becomes of it.")


@dataclass(frozen=True, slots=True)
class EarlierTrace:
    """A trace of a function that turned out to close over references, for the form of it that takes their arrays.

    Attributes:
        over: whose form that is.
        closed: all references that the function closes over, as far as is known; the last of them are new.
        count: how many are new. Their arrays are the last inputs of the program, and their last arrays its last results.
        traced: the trace. In one of a form the result is a pair, whose second part has last arrays, too.
        of_form: whether it is one of a form.
        named: the number of inputs that are arguments by name, which come after the references' arrays in the form.
        written: the positions of written ones among the references that have last arrays.
    """

    over: Any
    closed: tuple[Reference, ...]
    count: int
    traced: TracedCall
    of_form: bool
    named: int
    written: frozenset[int]

    @classmethod
    def of(cls, form: Any, error: UndeclaredReferenceError, traced: TracedCall, call: BoundCall) -> EarlierTrace:
        """The trace of a compiled function that ended with an error, for the form with the references that the error names."""
        tree, count, outputs = traced.out_tree, len(error.references), traced.program.outputs
        of_form = form.over is not None
        own_count = len(tree_unflatten(tree, [0] * tree.num_leaves)[1]) if of_form else 0
        pairs = enumerate(zip(outputs[len(outputs) - count :], traced.program.inputs[-count:], strict=True), own_count)
        return cls(
            form.over or form.over_values(),
            (*form.closed, *error.references),
            count,
            traced,
            of_form,
            len(tree_leaves(call.dynamic_kwargs)),
            frozenset((*form.written, *[i for i, (last, first) in pairs if last is not first])),
        )

    def for_form(
        self, form: Any, in_tree: PyTreeDef, types: Sequence[ShapedArray], names: Sequence[str]
    ) -> TracedCall | None:
        """The trace of `form` for such arguments; None if this is another's."""
        if self.over is not form.over or tuple(map(id, form.closed)) != tuple(map(id, self.closed)):
            return None
        program = self.traced.program
        consts, own = program.inputs[: program.num_consts], program.inputs[program.num_consts :]
        new = len(own) - self.count
        first = new - self.named
        ordered_inputs = (*own[:first], *own[new:], *own[first:new])
        if tuple(v.aval for v in ordered_inputs) != tuple(types):
            return None
        form.written.update(self.written)
        tree = self.traced.out_tree
        result = tree_unflatten(tree, [0] * tree.num_leaves)
        result, last = result if self.of_form else (result, [])
        whole = Program(
            (*consts, *ordered_inputs), program.equations, program.outputs, program.num_consts, program.name
        )
        out_tree = tree_structure((result, [0] * (len(last) + self.count)))
        return replace(self.traced, program=whole, in_tree=in_tree, out_tree=out_tree, names=tuple(names))


class _PassedReference:
    """A reference passed into a function: its array, and the class of the reference to make inside."""

    __slots__ = ("kind", "value")

    def __init__(self, kind: Any, value: Any) -> None:
        self.kind = kind
        self.value = value


class _Contents:
    """The step of a key path from a reference to its array."""

    def __str__(self) -> str:
        return "[...]"


register_pytree_with_keys(
    _PassedReference,
    lambda p: (((_Contents(), p.value),), p.kind),
    lambda kind, values: _PassedReference(kind, *values),
)


def pass_references(
    fun: Callable[..., Any],
    args: Sequence[Any],
    dynamic: Sequence[int],
    kwargs: dict[str, Any],
    closed: Sequence[Reference] = (),
) -> tuple[list[Any], dict[str, Any], list[Reference]]:
    """The arguments with each reference's array in its place, and the references.

    Args:
        fun: the function, for errors.
        args: all arguments by position.
        dynamic: the positions of arguments that may hold references.
        kwargs: arguments by name, which may hold references.
        closed: the references that the function closes over.

    Raises:
        ValueError: one reference occurs twice.
    """
    trees = open_views(([args[i] for i in dynamic], kwargs))
    references = [x for x in tree_leaves(trees) if is_reference(x)]
    check_distinct(references, closed, TracedArguments(fun, "jit", args, kwargs))
    eager = is_eager()

    def value_of(x: Any) -> Any:
        return _PassedReference(type(x), x.take_array() if eager else x.held()) if is_reference(x) else x

    values, keywords = tree_map(value_of, trees)
    positional = list(args)
    for i, value in zip(dynamic, values, strict=True):
        positional[i] = value
    return positional, keywords, references


def without_passed(tree: Any) -> Any:
    """A tree in the form of `pass_references`, with each reference replaced by the value that stands for its array."""
    return tree_map(
        lambda x: x.value if isinstance(x, _PassedReference) else x,
        tree,
        is_leaf=lambda x: isinstance(x, _PassedReference),
    )


def committed_sharding(x: Any) -> Sharding | None:
    """The sharding of a committed array, or of a type that names one; None for other values."""
    sig = getattr(x, "_sig", None)
    return sig.sharding if sig is not None and sig.committed else None


def held_wholly(args: Sequence[Any], apart: Sequence[int]) -> tuple[int, ...]:
    """The positions of arguments, except those in `apart`, that consist only of references."""
    return tuple(
        i
        for i, a in enumerate(args)
        if i not in apart and (leaves := tree_flatten(a)[0]) and all(map(is_reference, leaves))
    )


def over_values(
    fun: Callable[..., Any], chosen: ArgSelection, closed: Sequence[Reference], written: set[int]
) -> Callable[..., Any]:
    """`fun` for arguments that `pass_references` returned; returns its results and the last values of the references.

    Those that are static in `chosen` are passed on as they are. References that `fun` closes over have their arrays in a list, the last
    positional argument. When it is traced, `written` gets the positions of the references that it writes.
    """

    def with_values(*args: Any, **kwargs: Any) -> tuple[Any, list[Array]]:
        new_references: list[Reference] = []

        def enter_value(x: Any) -> Any:
            if not isinstance(x, _PassedReference):
                return x
            new_references.append(x.kind(x.value))
            return new_references[-1]

        values_of_closed: Sequence[Array] = ()
        own = args
        if closed:
            own, values_of_closed = args[:-1], args[-1]
        static = from_beginning(chosen.static_nums, len(own))
        trees = (
            {i: a for i, a in enumerate(own) if i not in static},
            {k: v for k, v in kwargs.items() if k not in chosen.static_names},
        )
        values, keywords = closed_views(tree_map(enter_value, trees, is_leaf=lambda x: isinstance(x, _PassedReference)))
        positional = [values.get(i, a) for i, a in enumerate(own)]
        with hold_references(closed, values_of_closed):
            first = [r.held() for r in (*new_references, *closed)]
            result = fun(*positional, **{**kwargs, **keywords})
            last = [r.held() for r in (*new_references, *closed)]
            written.update(i for i, (a, b) in enumerate(zip(first, last, strict=True)) if a is not b)
            return result, last

    functools.update_wrapper(with_values, fun, updated=())
    with_values.__name__ = name_of(fun)
    return with_values


def _positional_key(args: Sequence[Any], leaves: Sequence[Any]) -> tuple[Any, ...] | None:
    """The key of a call of arrays and references, whose arrays are `leaves`; None if there are other arguments."""
    if not {*map(type, leaves)} <= {ArrayImpl}:
        return None
    return (context_token(), *[None if type(x) is ArrayImpl else type(x) for x in args], *[x._sig for x in leaves])


class OverValues:
    """A compiled function for arguments that hold references, or of a function that closes over some.

    Args:
        fun: the user's function.
        options: the options of its `jit`.
        compiled: compiles a function with options.
    """

    def __init__(self, fun: Callable[..., Any], options: Any, compiled: Callable[..., Any]) -> None:
        self._fun = fun
        self._options = options
        self._compiled = compiled
        self._forms: Bounded[Any, Any] = Bounded(64)
        self._entries: Bounded[Any, Any] = Bounded(1024)  # compiled calls of arrays and references by position
        self._closed: Bounded[Any, Sequence[Reference]] = Bounded(1024)  # the references that they close over
        # Functions of the rest, by the references among the arguments.
        self._by_identity: Bounded[Any, Any] = Bounded(64)

    def bind_call(
        self,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        static: Sequence[int],
        dynamic: Sequence[int],
        closed: Sequence[Reference] = (),
    ) -> tuple[Any, list[Any], dict[str, Any], list[Reference]]:
        """The compiled function of values, its arguments by position and by name, and the references."""
        chosen, outs = self._options.args, self._options.out_shardings
        traced_kwargs = {k: v for k, v in kwargs.items() if k not in chosen.static_names}
        positional, keywords, references = pass_references(self._fun, args, dynamic, traced_kwargs, closed)
        donated_args = {*from_beginning(chosen.donate_nums, len(args)), *held_wholly(args, static)}
        if closed:
            eager = is_eager()
            positional.append([r.take_array() if eager else r.held() for r in closed])
            donated_args.add(len(args))
        references += closed
        kept_shardings = None if outs is UNSPECIFIED else tuple([committed_sharding(r.held()) for r in references])
        key = (tuple(sorted(donated_args)), kept_shardings, len(args) if closed else -1, *map(id, closed))
        form = self._forms.get(key)
        if form is None:
            selection = replace(chosen, donate_nums=tuple(sorted(donated_args)), static_nums=tuple(static))
            options = replace(self._options, args=selection)
            if kept_shardings is not None:
                options = replace(options, out_shardings=(outs, list(kept_shardings)))
            ins = options.in_shardings
            if closed and ins is not UNSPECIFIED and ins is not None:
                given = tuple(ins) if isinstance(ins, (tuple, list)) else (ins,) * len(dynamic)
                options = replace(options, in_shardings=(*given, None))
            written_places: set[int] = set()
            chosen = replace(chosen, static_nums=tuple(static))
            form = self._compiled(over_values(self._fun, chosen, closed, written_places), options)
            form.over = self
            form.written = written_places
            form.closed = tuple(closed)
            self._forms[key] = form
        return form, positional, {**kwargs, **keywords}, references

    def call_by_identity(self, without: tuple[Any, Any], rebuilt: Callable[[Any], Any]) -> Any:
        """A call traced for the very references among its arguments, which a backward pass will write.

        Args:
            without: the positional and the named arguments without their references.
            rebuilt: puts the references back.
        """
        args, kwargs = without
        key = tuple([id(x) for x in tree_leaves(rebuilt(without)) if is_reference(x)])
        form = self._by_identity.get(key)
        if form is None:

            @functools.wraps(self._fun, updated=())
            def over_rest(*args: Any, **kwargs: Any) -> Any:
                args, kwargs = closed_views(rebuilt((args, kwargs)))
                return self._fun(*args, **kwargs)

            form = self._by_identity[key] = self._compiled(over_rest, self._options)
        return form(*args, **kwargs)

    def repeat_call(self, args: Sequence[Any]) -> tuple[Any] | None:
        """The result of a call like an earlier one, of arrays and references by position; None if there was none."""
        if not self._entries:
            return None
        references = [x for x in args if isinstance(x, Reference)]
        leaves = [x.take_array() if isinstance(x, Reference) else x for x in args]
        key = _positional_key(args, leaves)
        if key is None:
            return None
        closed_references = self._closed.get(key, ())
        if len(references) + len(closed_references) > 1:
            check_distinct(references, closed_references, TracedArguments(self._fun, "jit", args))
        references += closed_references
        if closed_references:
            state_arrays: list[Any] = [r.take_array() for r in closed_references]
            leaves += state_arrays
            key = (*key, *[x._sig for x in state_arrays])
        entry = self._entries.get(key)
        if entry is None:
            return None
        result, last = entry.call(leaves)
        for reference, value in zip(references, last, strict=True):
            reference.replace(value)
        return (result,)

    def call(
        self,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        static: Sequence[int],
        dynamic: Sequence[int],
        closed: Sequence[Reference] = (),
    ) -> Any:
        """Pass the arrays of the references, and write their last values back."""
        form, positional, keywords, references = self.bind_call(args, kwargs, static, dynamic, closed)
        result, last = form(*positional, **keywords)
        if not (kwargs or static) and is_eager():
            own = positional[: len(args)]
            key = _positional_key(args, [x.value if isinstance(x, _PassedReference) else x for x in own])
            entry = None if key is None else form.entry_of(positional)
            if key is not None and entry is not None:
                if closed:
                    self._closed[key] = closed
                    key = (*key, *[x._sig for x in positional[-1]])
                self._entries[key] = entry
        for i, (reference, value) in enumerate(zip(references, last, strict=True)):
            if (
                i in form.written or is_eager()
            ):  # a map or a derivative also returns the others' arrays, which are not written
                reference.replace(value)
        return result
