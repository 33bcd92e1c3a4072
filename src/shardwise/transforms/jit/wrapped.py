"""`JitWrapped`, the callable that `jit` returns: trace once per signature, compile once per placement, then run.

In: a function, and arguments as trees of arrays. Out: trees of Arrays. A repeated call with arrays looks its compiled
entry up by the identity of the arguments' signatures and then only runs the plan.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Self, overload

from shardwise.base import config
from shardwise.base.config import context_token
from shardwise.base.events import TRACE_EVENT, record_event_duration_secs
from shardwise.base.signatures import P, Q, R
from shardwise.base.tracebacks import filter_traceback
from shardwise.base.tree import PyTreeDef, tree_flatten, tree_leaves_with_path, tree_unflatten
from shardwise.base.wrapping import copy_identity, importable_name, name_of
from shardwise.engine.array import ArrayImpl
from shardwise.engine.eager import literal_signature
from shardwise.engine.signature import Signature, array_type, signature
from shardwise.ir import (
    Array,
    Program,
    ShapedArray,
    Tracer,
    bind,
    eval_program,
    is_eager,
    kept_equations,
    recording_trace,
    trace_of_operands,
    trace_program,
    tracing,
)
from shardwise.ir.reference_arguments import close_over
from shardwise.ir.references import (
    BY_IDENTITY,
    RECORDED_CALL,
    EndedReferenceError,
    UndeclaredReferenceError,
    call_closing_over,
    open_views,
)
from shardwise.sharding import Device, NamedSharding, Sharding, SingleDeviceSharding
from shardwise.transforms.jit.abstract import Abstract, over_signature, refuse_types, with_placeholders
from shardwise.transforms.jit.abstract_meshes import nowhere, over_devices
from shardwise.transforms.jit.binding import JitOptions, bound_call
from shardwise.transforms.jit.cache_misses import explain_miss
from shardwise.transforms.jit.call_shardings import CallShardings
from shardwise.transforms.jit.compiled_call import compile_call
from shardwise.transforms.jit.entry import Entry
from shardwise.transforms.jit.jit_op import jit_op
from shardwise.transforms.jit.jit_shardings import placed_signature
from shardwise.transforms.jit.references import EarlierTrace, OverValues, ReferenceArgument
from shardwise.transforms.jit.shared_caches import clear_with_all, shared_caches
from shardwise.transforms.jit.traced_call import TracedCall
from shardwise.transforms.tracing import (
    BoundCall,
    argument_names,
    as_result,
    check_donation,
    check_output,
    key_leaves,
    keyed_tree,
)


def signature_of(fun: Callable[..., Any]) -> inspect.Signature:
    """The signature of a wrapped function; AttributeError, as `inspect` expects, if it has none."""
    try:
        return inspect.signature(fun)
    except (TypeError, ValueError) as error:
        raise AttributeError(str(error)) from None


class JitWrapped(Generic[P, R]):
    """A function compiled per signature. Call it like the original function; see also `trace`, `lower`, `eval_shape`."""

    def __init__(self, fun: Callable[P, R], options: JitOptions) -> None:
        copy_identity(self, fun)
        self._fun: Callable[..., Any] = fun
        self._options = options
        self._asked = CallShardings(options)
        chosen = options.args
        self._plain = not (chosen.static_nums or chosen.static_names)  # every argument is dynamic
        self._splits: dict[int, tuple[list[int], list[int]]] = {}
        self._over_values: OverValues | None = None
        self._by_identity = False  # whether calls are traced for the references among their arguments
        self.over: OverValues | None = None  # the function with references, if this is its form over their arrays
        self.closed: tuple[
            Any, ...
        ] = ()  # the references that the function closes over: the form takes their arrays last
        self.written: set[int] = set()  # the positions of those that it writes, once it was traced
        self._fast: dict[Any, Entry]
        self._traces: dict[Any, TracedCall | tuple[Any, ...]]  # a tuple: the references that the function closes over
        self._fast, self._traces = shared_caches(fun, options)

    def __repr__(self) -> str:
        try:
            return f"<PjitFunction of {vars(self)['__wrapped__']!r}>"
        except Exception:  # the function's own repr fails, or was removed
            return "<PjitFunction>"

    def __reduce__(self) -> Any:
        # Like a function where a module has it; otherwise the function and the options, without what was compiled.
        return importable_name(self) or (wrap, (self._fun, self._options))

    @property
    def __signature__(self) -> inspect.Signature:
        """The function's signature, for `inspect`."""
        return signature_of(self._fun)

    if TYPE_CHECKING:
        __name__: str  # the function's, as `__wrapped__` is the function
        __wrapped__: Callable[P, R]

        # of a method
        @overload
        def __get__(self, instance: None, owner: Any = None) -> Self: ...
        @overload
        def __get__(
            self: JitWrapped[Concatenate[Any, Q], R], instance: object, owner: Any = None
        ) -> Callable[Q, R]: ...

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._plain and not kwargs:
            try:
                entry = self._fast.get((context_token(), *[a._sig for a in args]))  # pyright: ignore[reportAttributeAccessIssue]
            except AttributeError:  # not all arguments are concrete arrays
                entry = None
            if entry is not None and is_eager():
                return entry.call(args)
        try:
            return self._call(args, kwargs)
        except Exception as error:
            filter_traceback(error)
            raise  # without a value, which would add this frame again

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._by_identity and not BY_IDENTITY.get():
            with BY_IDENTITY.override(True):
                return self._call_slow(args, kwargs)
        try:
            return self._call_slow(args, kwargs)
        except EndedReferenceError:
            if self.over is not None or BY_IDENTITY.get():
                raise
        # A rule kept a reference among the arguments for the backward pass: which one has to be known while the rule is traced.
        with BY_IDENTITY.override(True):
            result = self._call_slow(args, kwargs)
        self._by_identity = True
        return result

    def _call_slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        key = None
        if is_eager():
            if self._over_values is not None and self._plain and not kwargs:
                result = self._over_values.repeat_call(args)
                if result is not None:
                    return result[0]
            key, leaves = self._key(args, kwargs)
            try:
                entry = self._fast.get(key)
            except Exception:  # a static argument that does not hash or compare: binding the arguments raises the error
                key = entry = None
            if entry is not None:
                return entry.call(leaves)
        if config.jax_disable_jit:
            return self._fun(*args, **kwargs)
        try:
            call = self._bind_arguments(args, kwargs)
        except ReferenceArgument:
            return self._call_over_values(args, kwargs)
        try:
            return self._call_bound(call, key, args, kwargs)
        except UndeclaredReferenceError as error:
            if self.over is not None:  # the caller makes a new form
                raise
            return self._call_over_values(args, kwargs, error.references, error.recorded)

    def entry_of(self, args: Sequence[Any]) -> Entry | None:
        """The compiled call of such arguments; None if there is none."""
        return self._fast.get(self._key(tuple(args), {})[0])

    def over_values(self) -> OverValues:
        """The function for calls with references."""
        self._over_values = self._over_values or OverValues(self._fun, self._options, JitWrapped)
        return self._over_values

    def _call_over_values(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], closed: Sequence[Any] = (), recorded: Any = None
    ) -> Any:
        """A call with references, among the arguments or closed over."""

        def call(closed: Sequence[Any]) -> Any:
            return self.over_values().call(args, kwargs, *self._split(len(args)), closed)

        closure = close_over(open_views((args, kwargs))) if BY_IDENTITY.get() else None
        return (
            call_closing_over(closed, call, recorded)
            if closure is None
            else self.over_values().call_by_identity(*closure)
        )

    def bound_over_values(self, args: tuple[Any, ...], kwargs: dict[str, Any], closed: Sequence[Any]) -> Any:
        """`OverValues.bound` of a call."""
        return self.over_values().bind_call(args, kwargs, *self._split(len(args)), closed)

    def _call_bound(self, call: BoundCall, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not is_eager():
            return self._call_traced(call)
        trace = trace_of_operands(call.leaves)
        if trace is not None:
            with tracing(trace):
                return self._call_traced(call)
        check_donation(call.leaves, call.donated_positions(self._options.args))
        for x in call.leaves:
            if isinstance(x, ArrayImpl):
                x._check_alive()
        entry = compile_call(self, call, [_leaf_signature(x) for x in call.leaves])
        refuse_types(self._fun, [call.leaves[i] for i in entry.kept])
        if key is not None:
            self._fast[key] = entry
            if self._plain and not kwargs and all(type(a) is ArrayImpl for a in args):
                self._fast[(key[0], *[a._sig for a in args])] = entry
        return entry.call(call.leaves)

    def _split(self, count: int) -> tuple[list[int], list[int]]:
        """The static and the dynamic positions among `count` positional arguments."""
        split = self._splits.get(count)
        if split is None:
            nums = {n % count if -count <= n < 0 else n for n in self._options.args.static_nums}
            static = [i for i in range(count) if i in nums]
            split = self._splits[count] = static, [i for i in range(count) if i not in nums]
        return split

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
        """The key of a call's compiled entry, and the call's leaves; (None, []) if an argument is invalid."""
        statics: tuple[Any, ...] = ()
        if not self._plain:
            static, dynamic = self._split(len(args))
            statics = tuple([(type(args[i]), args[i]) for i in static])
            args = tuple([args[i] for i in dynamic])
            if kwargs:
                chosen = self._options.args.static_names
                statics += tuple([(k, type(v), v) for k, v in sorted(kwargs.items()) if k in chosen])
                kwargs = {k: v for k, v in kwargs.items() if k not in chosen}
        form: Any = len(args)
        flat: Sequence[Any] = args
        if kwargs:
            names = sorted(kwargs)
            flat = [*args, *[kwargs[k] for k in names]]
            form = (len(args), *names)
        try:
            leaves_and_sigs = key_leaves(flat)
            if leaves_and_sigs is None:
                leaves_and_sigs = leaves, sigs = [], []
                form = form, *[keyed_tree(x, leaves, sigs) for x in flat]
        except (TypeError, OverflowError):  # binding the arguments raises the error, with the argument's path
            return None, []
        leaves, sigs = leaves_and_sigs
        return (context_token(), form, statics, *sigs), leaves

    # -- arguments -------------------------------------------------------------------------------------------------------------

    def _bind_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BoundCall:
        return bound_call(self._fun, self._options, args, kwargs)

    # -- tracing ---------------------------------------------------------------------------------------------------------------

    def _trace(self, call: BoundCall, types: Sequence[ShapedArray], meshes: tuple[Any, ...] = ()) -> TracedCall:
        """The trace for arguments of these types on these meshes."""
        key = (context_token(), call.in_tree, call.statics, meshes, *types)
        traced_call = self._traces.get(key)
        if traced_call is None:
            if config.jax_explain_cache_misses:
                _log(explain_miss(self._fun, call, key, self._traces))
            try:
                traced_call = self._earlier_trace(call, types) or self._trace_new(call, types)
            except UndeclaredReferenceError as error:
                if all(r.made_eagerly for r in error.references):
                    self._traces[key] = error.references
                raise
            if traced_call.cacheable:
                self._traces[key] = traced_call
        if isinstance(traced_call, tuple):
            raise UndeclaredReferenceError(traced_call)
        return traced_call

    def _earlier_trace(self, call: BoundCall, types: Sequence[ShapedArray]) -> TracedCall | None:
        """The trace of another form of the function, if it found this form's references."""
        before = RECORDED_CALL.get()
        if not isinstance(before, EarlierTrace):
            return None
        names = argument_names(self._fun, call.args, call.dynamic_kwargs, tuple(i for i, _ in call.statics.args))
        return before.for_form(self, call.in_tree, types, names)

    def _trace_new(self, call: BoundCall, types: Sequence[ShapedArray]) -> TracedCall:
        fun = self._fun
        if config.jax_no_tracing:
            raise RuntimeError(f"re-tracing function {fun} for {self._options.api}, but no_tracing is set")
        name = name_of(fun)
        names = argument_names(fun, call.args, call.dynamic_kwargs, tuple(i for i, _ in call.statics.args))
        out_tree: PyTreeDef | None = None

        def flat(*tracers: Any) -> list[Any]:
            nonlocal out_tree
            args, kwargs = call.rebuild(tracers)
            result = fun(*args, **kwargs)
            leaves, out_tree = tree_flatten(result)
            for path, leaf in tree_leaves_with_path(result) if not all(isinstance(x, Array) for x in leaves) else ():
                check_output(leaf, name, path)
            return [as_result(leaf) for leaf in leaves]

        start = time.perf_counter()
        recorder = recording_trace(name)
        recorder.declares_reads = True

        def make_traced(program: Program, consts: Sequence[Any]) -> TracedCall:
            record_event_duration_secs(TRACE_EVENT, time.perf_counter() - start, fun_name=name)
            assert out_tree is not None
            cacheable = not any(isinstance(c, Tracer) for c in consts)
            return TracedCall(kept_equations(program), tuple(consts), call.in_tree, out_tree, tuple(names), cacheable)

        try:
            return make_traced(*trace_program(flat, types, name, names, recorder))
        except UndeclaredReferenceError as error:
            if error.recorded is not None and error.recorded[0] is recorder:
                error.recorded = EarlierTrace.of(self, error, make_traced(*error.recorded[1:]), call)
            raise

    def _call_traced(self, call: BoundCall) -> Any:
        """The call inside another trace: a call equation in the outer program, or the body itself if `inline`."""
        types = [x.aval for x in call.leaves]
        traced_call = self._trace(call, types)
        leaves = with_placeholders(call.leaves, traced_call)
        if self._options.inline:
            outs = eval_program(traced_call.program, [*traced_call.consts, *leaves])
        else:
            ins, outs_wanted = self._asked.of(call, traced_call)
            outs = bind(
                jit_op,
                *traced_call.consts,
                *leaves,
                program=traced_call.program,
                name=traced_call.program.name,
                in_shardings=(None,) * len(traced_call.consts) + tuple(ins),
                out_shardings=tuple(outs_wanted),
            )
        return tree_unflatten(traced_call.out_tree, outs)

    # -- shardings ---------------------------------------------------------------------------------------------------------------

    def prepare(
        self,
        call: BoundCall,
        sigs: Sequence[Signature],
        devices: tuple[Device, ...] | None = None,
        tracing: bool = True,
    ) -> tuple[TracedCall, list[Signature], list[Sharding | None]]:
        """Resolve in_shardings, trace, and resolve out_shardings. AbstractMeshes are put over `devices`, or over the devices that the
        call names. Without devices they stay abstract for `tracing`, and raise ValueError otherwise.
        """
        ins = self._asked.of_arguments(call)
        api = self._options.api
        abstract = self._asked.abstract(call, ins)
        if abstract:
            devices = devices or self._asked.named_devices(sigs, ins)
            if devices is None and not tracing:
                raise nowhere(abstract[0], api)
            ins = [over_devices(s, devices) for s in ins]
            sigs = [over_signature(x, sig, devices) for x, sig in zip(call.leaves, sigs, strict=True)]
        if any(s is not None for s in ins):
            names = argument_names(self._fun, call.args, call.dynamic_kwargs, tuple(i for i, _ in call.statics.args))
            if self._options.device is None:
                placed_sigs = [placed_signature(s, sh, n) for s, sh, n in zip(sigs, ins, names, strict=True)]
            else:
                placed_sigs = [_on_device(s, sh) for s, sh in zip(sigs, ins, strict=True)]
        else:
            placed_sigs = list(sigs)
        meshes = tuple(
            s.sharding.mesh.abstract_mesh if isinstance(s.sharding, NamedSharding) else None for s in placed_sigs
        )
        traced_call = self._trace(call, [s.aval for s in placed_sigs], meshes if any(meshes) else ())
        _, outs = self._asked.of(call, traced_call)
        if self._options.device is not None:  # also where no argument says so
            there: list[Sharding | None] = [SingleDeviceSharding(self._options.device)]
            outs = there * len(outs)
        return traced_call, placed_sigs, [over_devices(s, devices) for s in outs] if abstract else outs

    # -- the wrapper's own methods -------------------------------------------------------------------------------------------------

    def clear_cache(self) -> None:
        """Forget this function's traces and compiled programs."""
        self._fast.clear()
        self._traces.clear()
        self._over_values = None

    def _cache_size(self) -> int:
        """The number of compiled calls, for tests of programs written for JAX."""
        return len(set(map(id, self._fast.values())))

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """Trace for these arguments (arrays or ShapeDtypeStructs) without running."""
        from shardwise.transforms.jit.stages import trace_call  # start-up time

        return trace_call(self, args, kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Trace and lower for these arguments; see `Lowered`."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The results as a tree of ShapeDtypeStructs."""
        return self.trace(*args, **kwargs).eval_shape()


PjitFunction = JitWrapped  # its public name, by which libraries recognise jitted functions
JitWrapped.__name__ = JitWrapped.__qualname__ = "PjitFunction"


def _on_device(sig: Signature, sharding: Sharding | None) -> Signature:
    assert sharding is not None
    return signature(array_type(sig.aval.shape, sig.aval.dtype, sig.aval.weak_type, sharding), sharding, True)


def _leaf_signature(x: Any) -> Signature:
    return x._sig if isinstance(x, (ArrayImpl, Abstract)) else literal_signature(x)


def _log(message: str) -> None:
    import logging

    logging.getLogger("shardwise").warning(message)


def wrap(fun: Callable[P, R], options: JitOptions) -> JitWrapped[P, R]:
    """The `JitWrapped` of `fun` with these options; `clear_caches` clears its caches."""
    jit_function = JitWrapped(fun, options)
    clear_with_all(jit_function)
    return jit_function
