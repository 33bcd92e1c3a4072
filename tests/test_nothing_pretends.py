"""Nothing pretends: every parameter of every public function and method is read, or stands here and in its docstring with the reason."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shardwise

# Parameters that nothing reads, by module and function. The docstring of each names them and says why.
UNREAD: dict[str, set[str]] = {
    "api_util.debug_info": {"args", "kwargs", "more"},
    "distributed.initialize": {"cluster_detection_method", "partition_index", "slice_index"},
    "experimental.mesh_utils.create_device_mesh": {"allow_split_physical_axes", "contiguous_submeshes"},
    "experimental.mesh_utils.create_hybrid_device_mesh": {"allow_split_physical_axes"},
    "experimental.pallas.access.load": {"cache_modifier", "eviction_policy", "volatile"},
    "experimental.pallas.access.swap": {"eviction_policy"},
    "experimental.pallas.call.pallas_call": {"compiler_params", "interpret", "metadata"},
    "experimental.pallas.copies.AsyncCopyDescriptor.start": {"priority"},
    "experimental.pallas.ops.tpu.flash_attention.BlockSizes.get_default": {
        "batch_size", "d_model", "kv_len", "num_heads", "q_seq_len",
    },
    "experimental.pallas.ops.tpu.flash_attention.flash_attention": {"debug"},
    "experimental.pallas.ops.tpu.megablox.gmm.gmm": {"interpret"},
    "experimental.pallas.ops.tpu.megablox.gmm.tgmm": {"interpret"},
    "experimental.pallas.scoped.max_contiguous": {"values"},
    "experimental.pallas.scoped.multiple_of": {"values"},
    "experimental.pallas.scoped.reciprocal": {"full_range"},
    "experimental.pallas.tpu.with_memory_space_constraint": {"memory_space"},
    "experimental.pallas.triton.load": {"cache_modifier", "eviction_policy", "volatile"},
    "experimental.xla_metadata.set_xla_metadata": {"notes"},
    "experimental.sparse.linalg.spsolve": {"tol"},
    "experimental.sparse.pieces.bcoo_gather": {"indices_are_sorted", "unique_indices"},
    "experimental.sparse.sparsify.sparsify": {"use_tracer"},
    "base.wrapped_functions.cache": {"explain"},
    "lax.composite.composite": {"version"},
    "lax.composite.create_token": {"_"},
    "lax.polar.qdwh": {"is_hermitian"},
    "nn.initializers.ones": {"key"},
    "nn.initializers.zeros": {"key"},
    "numpy.histograms.histogram_bin_edges": {"weights"},
    "numpy.sets.intersect1d": {"assume_unique"},
    "numpy.sets.isin": {"assume_unique"},
    "numpy.sets.unique": {"sorted"},
    "numpy.shapes.reshape": {"copy"},
    "numpy.unary.nan_to_num": {"copy"},
    "ops.linalg.spectral.eigh": {"sort_eigenvalues"},
    "ops.control.scan.scan": {"_split_transpose"},
    "scipy.factorizations.eigh_tridiagonal": {"key", "tol"},
    "transforms.derivatives.custom_vjp.custom_vjp.defvjp": {"optimize_remat"},
    "transforms.programs.jaxpr_views.Jaxpr.pretty_print": {
        "custom_pp_eqn_rules", "name_stack", "print_effects", "print_shapes", "use_color",
    },
    "transforms.programs.jaxpr_views.Jaxpr.replace": {"debug_info", "effects"},
    "transforms.programs.jaxpr_views.eval_jaxpr": {"propagate_source_info"},
    "transforms.programs.jaxpr_views.new_jaxpr_eqn": {"ctx", "effects"},
    "transforms.programs.primitives.register_lowering": {"cacheable", "inline"},
    "transforms.interpreters.trace_state.find_top_trace": {"values"},
    "transforms.interpreters.trace_state.get_opaque_trace_state": {"convention"},
    "transforms.interpreters.trace_state.set_current_trace": {"check_leaks"},
}  # fmt: skip
# Hints about memory and speed that SciPy's functions take; JAX takes and ignores them, too.
SCIPY_HINTS = {
    "check_finite",
    "debug",
    "lapack_driver",
    "lwork",
    "overwrite_a",
    "overwrite_b",
    "overwrite_c",
    "overwrite_data",
    "turbo",
}
# Functions that are called with more than they need: policies of checkpoint, the protocol of trees, a hook of traces.
CALLED_WITH_MORE = {
    "ir.trace.Trace.leave_reference",
    "transforms.derivatives.policies.dots_saveable",
    "transforms.derivatives.policies.dots_with_no_batch_dims_saveable",
    "transforms.derivatives.policies.everything_saveable",
    "transforms.derivatives.policies.nothing_saveable",
    "scipy.stats.kde.gaussian_kde.tree_unflatten",
}

_RUNS_ON_IMPORT = {"shardwise.__main__"}


def public_modules() -> Iterator[Any]:
    yield shardwise
    for found in pkgutil.walk_packages(shardwise.__path__, "shardwise."):
        if found.name in _RUNS_ON_IMPORT or any(part.startswith("_") for part in found.name.split(".")):
            continue
        if found.name.split(".")[1] in INSIDE:
            continue
        yield importlib.import_module(found.name)


INSIDE = {"base", "ir", "ops", "passes", "runtime", "transforms", "signature", "array", "placement", "compile", "eager", "transfer",
          "make_array", "inspection", "operators_on_demand", "guards", "cli", "alias"}  # fmt: skip


def public_callables() -> dict[str, Callable[..., Any]]:
    """Functions, and methods that classes define themselves, by the module and the name under which they are written."""
    found: dict[str, Callable[..., Any]] = {}

    def add(function: Any) -> None:
        plain = inspect.unwrap(function)
        if inspect.isfunction(plain) and plain.__module__.startswith("shardwise") and plain.__name__ != "<lambda>":
            found[f"{plain.__module__}.{plain.__qualname__}"] = plain

    for module in public_modules():
        for name in sorted(set(dir(module))):
            if name.startswith("_"):
                continue
            try:
                thing = getattr(module, name)
            except (AttributeError, ImportError):
                continue
            if inspect.isclass(thing) and thing.__module__.startswith("shardwise"):
                for attribute, member in vars(thing).items():
                    if not attribute.startswith("_") or attribute in ("__init__", "__call__", "__new__"):
                        add(member.__func__ if isinstance(member, (staticmethod, classmethod)) else member)
            elif callable(thing):
                add(thing)
    return found


def unread(function: Callable[..., Any]) -> set[str]:
    """Parameters that the body never loads; none for functions that only raise or are abstract."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):
        return set()
    node = tree.body[0]
    if not isinstance(node, ast.FunctionDef):
        return set()
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if not body or all(
        isinstance(s, (ast.Raise, ast.Pass)) or (s is body[0] and isinstance(s, ast.Expr)) for s in body
    ):
        return set()
    if any("abstract" in ast.dump(d) or "overload" in ast.dump(d) for d in node.decorator_list):
        return set()
    used = {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    if "locals" in used:
        return set()
    a = node.args
    every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x)]
    return {x.arg for x in every} - used - {"self", "cls"}


def inherited(name: str) -> bool:
    """Whether a method has its parameters because the class it inherits from says so."""
    owner, _, method = name.rpartition(".")
    where, _, kind = owner.rpartition(".")
    try:
        thing = getattr(importlib.import_module(where), kind, None)
    except ImportError:
        return False
    return inspect.isclass(thing) and any(method in vars(base) for base in thing.__mro__[1:])


# Functions that do nothing or give one answer, and classes without a body. The docstring of each says why.
CONSTANT = {
    "experimental.pallas.tpu.touch",
    "experimental.pallas.triton.debug_barrier",
    "transforms.tracing.blocking.effects_barrier",
    "transforms.derivatives.policies.everything_saveable",
    "transforms.derivatives.policies.nothing_saveable",
}
# Protocols, and hooks of base classes that subclasses fill in.
HOOKS = {
    "debug.visualize.HasIndices.devices_indices_map",
    "engine.data_free.DataFree.finish",
    "engine.planned.Recorder.note_call",
    "engine.planned.Recorder.note_program",
    "engine.planned.Recorder.read",
    "ir.trace.Tracer.describe",
    "nn.initializers.Initializer.__call__",
    "ref.places.Place.share",
    "ref.places.Place.shown_place",
    "sharding.sharding.Sharding.check_compatible_aval",
}
SHELLS = {
    "core.Effect",
    "profiler.StepTraceAnnotation",
    "transforms.programs.jaxpr_views.DropVar",
    "sharding.spec.TodaysSpec",
    "transforms.interpreters.trace_state.TraceTag",
}


def is_constant(function: Callable[..., Any]) -> bool:
    """Whether the body is empty, or gives a constant and no more."""
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, SyntaxError, TypeError):
        return False
    if not isinstance(node, ast.FunctionDef) or any(
        "abstract" in ast.dump(d) or "overload" in ast.dump(d) for d in node.decorator_list
    ):
        return False
    body = [
        s
        for s in node.body
        if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)) and not isinstance(s, ast.Delete)
    ]
    only = body[0] if len(body) == 1 else None
    return (
        not body
        or isinstance(only, ast.Pass)
        or (isinstance(only, ast.Return) and (only.value is None or isinstance(only.value, ast.Constant)))
    )


def shells() -> set[str]:
    """Public classes, other than exceptions, whose body is a docstring."""
    found = set()
    for module in public_modules():
        for name in sorted(set(dir(module))):
            try:
                thing = getattr(module, name)
            except (AttributeError, ImportError):
                continue
            if name.startswith("_") or not inspect.isclass(thing) or not thing.__module__.startswith("shardwise"):
                continue
            if issubclass(thing, BaseException) or thing.__module__ in (
                "shardwise.base.element_types",
                "shardwise.base.treeclass",
            ):
                continue
            own = set(vars(thing)) - {
                "__module__",
                "__doc__",
                "__dict__",
                "__weakref__",
                "__firstlineno__",
                "__static_attributes__",
            }
            if not own:
                found.add(f"{thing.__module__}.{thing.__qualname__}".removeprefix("shardwise."))
    return found


CALLABLES = public_callables()


@functools.cache
def missed() -> dict[str, set[str]]:
    """By callable, the parameters that it does not read."""
    return {
        name.removeprefix("shardwise."): names
        for name, f in CALLABLES.items()
        if (names := unread(f)) and not inherited(name)
    }


def test_the_sweep_sees_the_library() -> None:
    assert len(CALLABLES) > 1500
    assert {
        "shardwise.numpy.shapes.reshape",
        "shardwise.random.normal.normal",
        "shardwise.transforms.jit.jit.jit",
    } <= set(CALLABLES)

    def keeps(x: int, *, copy: bool = True, **_: int) -> int:
        return x

    def reads(x: int, y: int) -> int:
        def inner() -> int:
            return y

        return x + inner()

    assert unread(keeps) == {"copy", "_"} and unread(reads) == set()


def test_every_parameter_is_read_or_listed() -> None:
    found = {
        name: {p for p in parameters if not (name.startswith("scipy.") and p in SCIPY_HINTS)}
        for name, parameters in missed().items()
        if name not in CALLED_WITH_MORE
    }
    assert {name: ps for name, ps in found.items() if ps - UNREAD.get(name, set())} == {}


def test_the_list_is_no_longer_than_it_must_be() -> None:
    assert {name: ps - missed().get(name, set()) for name, ps in UNREAD.items() if ps - missed().get(name, set())} == {}
    assert set(missed()) >= CALLED_WITH_MORE


@pytest.mark.parametrize("name", UNREAD)
def test_docstrings_say_what_is_not_read(name: str) -> None:
    text = inspect.getdoc(CALLABLES[f"shardwise.{name}"]) or ""
    assert {p for p in UNREAD[name] if not re.search(rf"\b{p}\b", text)} == set()


def test_every_public_class_and_function_says_what_it_does() -> None:
    silent = [
        n
        for n, f in CALLABLES.items()
        if not inspect.getdoc(f)
        and n.rpartition(".")[2] not in ("__init__", "__call__", "__new__")
        and not inherited(n)
    ]
    assert [n for n in silent if not n.rpartition(".")[2].startswith("tree_")] == []


def test_constant_answers_and_empty_classes_are_listed() -> None:
    found = {n.removeprefix("shardwise.") for n, f in CALLABLES.items() if is_constant(f) and not inherited(n)}
    assert found == CONSTANT | HOOKS
    assert shells() == SHELLS
