"""Modules that libraries declare or guard things with: layouts, colocated Python, kinds of values, and names below the documented ones."""

import inspect
import operator
from collections import OrderedDict, defaultdict, deque
from typing import Any

import numpy as np
import pytest

import shardwise as jax
from shardwise import numpy as jnp
from shardwise._src import (
    api_util,
    array,
    core,
    distributed,
    dtypes,
    lib,
    literals,
    public_test_util,
    traceback_util,
    tree_util,
    typing,
)
from shardwise._src.numpy import einsum, lax_numpy, ufuncs
from shardwise.base.config import use_dialect
from shardwise.experimental import colocated_python, hijax, layout
from shardwise.extend import source_info_util
from shardwise.extend.core import Effect, Effects, Primitive, Var, control_flow_allowed_effects, gensym
from shardwise.extend.ifrt_programs import ifrt_programs
from shardwise.interpreters import partial_eval

INSIDE: Any = getattr(jax, "_src")  # noqa: B009


def test_layout_constraints():
    x = jnp.ones((2, 3))
    assert layout.with_layout_constraint(x, layout.Layout((1, 0))).tolist() == x.tolist()
    assert layout.Format(layout.Layout((0, 1)), x.sharding).layout == layout.Layout((0, 1))
    with pytest.raises(ValueError, match="incompatible with its layout"):
        layout.with_layout_constraint(x, layout.Layout((0,)))


def test_python_runs_here():
    f = colocated_python.colocated_python(lambda x: x + 1)
    assert float(f.specialize(devices=jax.devices())(jnp.float32(1.0))) == 2.0
    assert colocated_python.colocated_cpu_devices(jax.devices()) == jax.devices()
    made: list[int] = []

    class Adder:
        """Adds."""

        def __init__(self, increment: int) -> None:
            made.append(increment)
            self.increment = increment

        def add(self, x: Any, *, times: Any) -> Any:
            """Add."""
            return x + self.increment * times

    beside = colocated_python.colocated_python_class(Adder)
    adder = beside(3)
    assert (beside.__name__, beside.__doc__, beside.add.__doc__, made) == ("Adder", "Adds.", "Add.", [])
    assert [int(adder.add(jnp.int32(x), times=jnp.int32(2))) for x in (1, 2)] == [7, 8]
    assert made == [3]  # at the first call
    with pytest.raises(ValueError, match="only supports"):
        adder.add(1, times=jnp.int32(1))
    with pytest.raises(TypeError, match="takes a class"):
        colocated_python.colocated_python_class(lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"only supports jax\.Array"):
        f(1.0)
    with pytest.raises(ValueError, match="must first be specialized with devices"):
        colocated_python.colocated_python(lambda: jnp.ones(2))()
    assert colocated_python.colocated_python(lambda: jnp.ones(2)).specialize(devices=jax.devices()[:1])().shape == (2,)
    with pytest.raises(ValueError, match="already specified"):
        f.specialize(devices=jax.devices()).specialize(devices=jax.devices())
    like = jax.ShapeDtypeStruct((2,), np.float32)
    with pytest.raises(ValueError, match="specialized for arguments"):
        f.specialize(in_specs=((like,), {}))(jnp.ones(3))
    assert f.specialize(in_specs=((like,), {}), out_specs_fn=lambda x: like)(jnp.ones(2)).shape == (2,)
    with pytest.raises(ValueError, match="out_specs_fn says"):
        f.specialize(out_specs_fn=lambda x: like)(jnp.ones(3))


def test_effects_keep_equations_and_run_each_time():
    told: list[str] = []
    loud, quiet = Primitive("loud"), Primitive("quiet")
    loud.def_impl(lambda x: told.append("loud") or x)
    quiet.def_impl(lambda x: told.append("quiet") or x)
    loud.def_effectful_abstract_eval(lambda x: (x, {Effect()}))
    quiet.def_effectful_abstract_eval(lambda x: (x, set()))

    @jax.jit
    def f(x):
        loud.bind(x)
        quiet.bind(x)
        return x + 1

    assert float(f(1.0)) == float(f(1.0)) == 2.0
    assert told == ["loud", "loud"]


def test_the_class_of_arrays_is_where_libraries_look_for_it():
    assert type(jnp.ones(2)) is array.ArrayImpl


def test_backends_are_there_once_devices_are(shell):
    code = "from shardwise._src.xla_bridge import _backends as b; import shardwise as s; print(dict(b)); s.devices(); print(list(b))"
    assert shell("-c", code).stdout.split("\n")[:2] == ["{}", "['cpu']"]


def test_references_have_one_memory():
    makers = (jax.new_ref, lambda x, **given: jax.empty_ref(jax.typeof(x), **given))
    for make in makers:
        assert make(jnp.ones(2)).shape == (2,)
        with pytest.raises(NotImplementedError, match="Leave it out"):
            make(jnp.ones(2), memory_space="pinned_host")


class Cell:
    """A value of a declared type, which its primitives write."""

    def __init__(self, held):
        self.held = held

    def cur_qdd(self):
        return jax.typeof(self.held)


class CellType(hijax.MutableHiType):
    pass


class Fill(hijax.HiPrimitive):
    def to_lojax(self, cell, x, *, times):
        cell.held = x * times
        return []


class Look(hijax.HiPrimitive):
    def to_lojax(self, cell):
        return cell.held


hijax.register_hitype(Cell, lambda cell: CellType())


def test_primitives_of_declared_kinds_run_on_concrete_values():
    cell = Cell(jnp.ones(2))
    fill, look = Fill("fill"), Look("look")
    assert fill.bind(cell, jnp.arange(3.0), times=2) == []
    np.testing.assert_array_equal(look.bind(cell), [0, 2, 4])
    assert jax.experimental.cur_qdd(cell).shape == (3,)
    assert jax.grad(lambda x: x * look.bind(cell)[2])(1.0) == 4
    with pytest.raises(NotImplementedError, match="traced values"):
        jax.grad(lambda x: fill.bind(cell, x, times=2) or x)(1.0)
    with pytest.raises(NotImplementedError, match="in a program"):
        jax.jit(lambda x: x * look.bind(cell))(1.0)
    np.testing.assert_array_equal(look.bind(cell), [0, 2, 4])


def test_kinds_of_values_are_declared_but_no_operands():
    with pytest.raises(NotImplementedError, match="to_lojax"):
        hijax.HiPrimitive("mine").bind(1.0)
    with pytest.raises(NotImplementedError, match="make_plugin_program"):
        ifrt_programs.make_plugin_program("")
    assert not hasattr(ifrt_programs, "other")

    class Mine(Effect):
        pass

    assert not control_flow_allowed_effects.contains(Mine())
    control_flow_allowed_effects.add_type(Mine)
    assert control_flow_allowed_effects.contains(Mine())


def test_names_below_the_documented_ones():
    assert core.trace_state_clean()
    states = []
    jax.jit(lambda x: states.append(core.trace_state_clean()) or x)(1.0)
    jax.vmap(lambda x: states.append(core.trace_state_clean()) or x)(jnp.ones(2))
    assert states == [False, False]
    assert (distributed.global_state.process_id, distributed.global_state.client) == (0, None)
    assert dtypes.supports_inf(np.float32)
    assert not dtypes.supports_inf(jnp.float8_e4m3fn)

    class Own:
        pass

    assert Own not in tree_util._registry
    jax.tree_util.register_pytree_node(Own, lambda x: ((), None), lambda *_: Own())
    assert Own in tree_util._registry
    assert {dict, list, tuple, type(None), Own} <= set(tree_util._registry)
    nodes = (Own(), (1, 2), [3], None, {"b": 1, "a": 2}, OrderedDict(b=1), defaultdict(int, b=1), deque([1], 3))
    for node in nodes:
        entry = tree_util._registry[type(node)]
        children, aux = entry.to_iter(node)
        again = entry.from_iter(aux, children)
        assert isinstance(again, Own) if isinstance(node, Own) else again == node


def test_excluded_frames_leave_tracebacks():
    def fails() -> Any:
        raise KeyError("x")

    outer = traceback_util.api_boundary(fails)
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "quiet_remove_frames")
    traceback_util.register_exclusion(__file__)
    try:
        with pytest.raises(KeyError) as caught:
            outer()
        kept = []
        tb = caught.value.__traceback__
        while tb is not None:
            kept.append(tb.tb_frame.f_code.co_name)
            tb = tb.tb_next
        assert "fails" not in kept
    finally:
        jax.config.update("jax_traceback_filtering", before)
        traceback_util._exclude_paths.remove(__file__)


def test_primitives_with_rules_as_equinox_gives_them():
    from shardwise.extend.core import Primitive
    from shardwise.interpreters import batching, mlir

    table = jnp.arange(4.0)
    p = Primitive("looked_up_along")
    p.def_impl(lambda x: x + table[1])
    p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(p, lambda ctx, x: [x])  # writes MLIR: the impl is run instead
    seen = []

    def rule(axis_size, axis_name, trace_type, args, dims, **params):
        seen.append((axis_size, axis_name, trace_type))
        return p.bind(*args), dims[0]

    batching.axis_primitive_batchers[p] = rule
    assert jax.jit(p.bind)(2.0) == 3  # what it captures is made in the program
    assert jax.vmap(p.bind, axis_name="n")(jnp.arange(3.0)).tolist() == [1, 2, 3]
    assert seen == [(3, "n", batching.BatchTrace)]


def test_modules_that_libraries_import():
    for name in (
        "ad_util.stop_gradient_p",
        "custom_api_util.register_custom_decorator_type",
        "dispatch.prim_requires_devices_during_lowering",
        "dispatch.wait_for_tokens",
        "flatten_util.ravel_pytree",
        "interpreters.ad.CustomVJPException",
        "interpreters.pxla.thread_resources",
        "linear_util.wrap_init",
        "mesh.get_concrete_mesh",
        "util.safe_zip",
        "lax.lax.add_p",
        "traceback_util.include_frame",
    ):
        module, _, member = name.rpartition(".")
        assert hasattr(operator.attrgetter(module)(INSIDE), member)
    assert hasattr(INSIDE.interpreters, "__path__")  # for `import jax._src.interpreters.ad`
    assert jax.interpreters.xla.pytype_aval_mappings is jax.core.pytype_aval_mappings
    assert jax.typeof(1).to_tangent_aval().dtype == jax.float0


@pytest.mark.parametrize(
    ("inside", "documented"),
    [
        ("api.ShapeDtypeStruct", "ShapeDtypeStruct"),
        ("api.grad", "grad"),
        ("core.gensym", "extend.core.gensym"),
        ("sharding.Sharding", "sharding.Sharding"),
        ("sharding_impls.NamedSharding", "sharding.NamedSharding"),
        ("partition_spec.PartitionSpec", "sharding.PartitionSpec"),
        ("stages.Compiled", "stages.Compiled"),
        ("random.PRNGKey", "random.PRNGKey"),
        ("ad_checkpoint.saved_residuals", "ad_checkpoint.saved_residuals"),
        ("array.Shard", "Shard"),
        ("pjit.pjit", "experimental.pjit.pjit"),
        ("pjit.with_sharding_constraint", "lax.with_sharding_constraint"),
        ("layout.Format", "experimental.layout.Format"),
        ("nn.functions.gelu", "nn.gelu"),
        ("scipy.special.logsumexp", "scipy.special.logsumexp"),
        ("callback.io_callback", "experimental.io_callback"),
    ],
)
def test_documented_names_where_jax_defines_them(inside, documented):
    assert operator.attrgetter(inside)(INSIDE) is operator.attrgetter(documented)(jax)
    module, _, name = inside.rpartition(".")
    scope: dict[str, Any] = {}
    exec(f"from shardwise._src.{module} import {name} as found", scope)
    assert scope["found"] is operator.attrgetter(documented)(jax)
    with pytest.raises(ImportError, match="nothing_of_the_kind"):
        exec(f"from shardwise._src.{module} import nothing_of_the_kind", scope)


def test_the_mesh_that_surrounds_calls():
    mesh = jax.make_mesh((2,), ("x",))
    env = jax.interpreters.pxla.thread_resources.env
    assert env.physical_mesh.empty
    with mesh:
        assert env.physical_mesh is mesh
    assert env.physical_mesh.empty


def test_lists_of_other_lengths_are_not_zipped():
    assert INSIDE.util.safe_zip([1, 2], "ab") == [(1, "a"), (2, "b")]
    with pytest.raises(AssertionError, match="length"):
        INSIDE.util.safe_zip([1], "ab")


def test_sizes_that_are_numbers():
    assert [core.is_constant_dim(d) for d in (3, -1, np.int8(2), 2.0, "n")] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("argnums", "argnames"),
    [(None, None), (1, None), ((2, 0), None), (None, "b"), (None, ["c", "b", "e"]), ((0,), ("b",)), (None, ())],
)
def test_numbers_and_names_of_arguments(argnums, argnames):
    oracle = pytest.importorskip("jax._src.api_util")

    def f(a, /, b, c, *d, e):
        pass

    sig = inspect.signature(f)
    expected = oracle.infer_argnums_and_argnames(sig, argnums, argnames)
    assert api_util.infer_argnums_and_argnames(sig, argnums, argnames) == expected


def test_why_a_tree_is_no_prefix_of_another():
    oracle = pytest.importorskip("jax._src.tree_util")
    for prefix, full in (((1, 2), (1, [2, 3])), ((1, 2), (1, 2, 3)), ({"a": 1}, {"b": 1}), ([1, (2, 3)], [1, [2, 3]])):
        found, expected = (m.prefix_errors(prefix, full) for m in (tree_util, oracle))
        assert len(found) == len(expected)
        assert all(isinstance(problem("in_axes"), ValueError) for problem in found)


def test_what_libraries_ask_of_jaxlib():
    oracle = pytest.importorskip("jax._src.lib")
    with use_dialect("0.10"):
        for name in ("version", "version_str", "jaxlib_extension_version"):
            assert getattr(lib, name) == getattr(oracle, name)
    with use_dialect("0.5"):
        assert (lib.version, lib.xla_extension_version) == ((0, 5, 3), 320)
        assert not hasattr(lib, "jaxlib_extension_version")


def test_functions_of_numpy_by_their_module_in_jax():
    assert lax_numpy.einsum is jnp.einsum
    assert lax_numpy.sum is jnp.sum
    assert typing.DTypeLike is jax.typing.DTypeLike


def test_sums_of_products_along_a_path_of_opt_einsum():
    pytest.importorskip("jax.numpy")
    oracle, opt_einsum = pytest.importorskip("jax._src.numpy.einsum"), pytest.importorskip("opt_einsum")
    given = [np.arange(6.0, dtype=np.float32).reshape(2, 3), np.ones((3, 4), np.float32), np.arange(4, dtype=np.int32)]
    for text in ("ij,jk,k->ki", "ij,jk,k->", "ij,lk,k->ijl"):
        operands, path = opt_einsum.contract_path(text, *given, einsum_call=True, use_blas=True, optimize="optimal")
        path = tuple((places, frozenset(names), step) for places, names, step, *_ in path)
        for wanted in (None, np.float32):
            found = einsum._einsum([jnp.asarray(x) for x in operands], path, None, wanted)
            expected = np.asarray(oracle._einsum(list(operands), path, None, wanted))
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


def test_functions_of_elements_by_their_module_in_jax():
    assert isinstance(ufuncs.add, ufuncs.ufunc)
    assert ufuncs.ufunc is jnp.ufunc


def test_annotations_join_names_of_classes():
    theirs = pytest.importorskip("jax.typing")
    for module in (jax.typing, theirs):
        for union in (module.ArrayLike, module.DTypeLike):
            assert "Later" in str("Later" | union) and "Later" in str(union | "Later")


@pytest.mark.parametrize("module", ["prng", "random.threefry2x32"])
def test_keys_as_words(module):
    words = operator.attrgetter(module)(INSIDE)
    seed = words.threefry_seed(jnp.int32(5))
    np.testing.assert_array_equal(seed, [0, 5])
    key = jax.random.key(5)
    np.testing.assert_array_equal(
        words.threefry_split(seed, (3, 2)), jax.random.key_data(jax.random.split(key, (3, 2)))
    )
    np.testing.assert_array_equal(
        words.threefry_fold_in(seed, jnp.int32(7)), jax.random.key_data(jax.random.fold_in(key, 7))
    )
    for width in (8, 16, 32):
        bits = words.threefry_random_bits(seed, width, (4,))
        np.testing.assert_array_equal(bits, jax.random.bits(key, (4,), f"uint{width}"))
    np.testing.assert_array_equal(jax.jit(words.threefry_seed)(jnp.int32(5)), seed)
    with pytest.raises(TypeError, match=r"a scalar of integer type, got f32"):
        words.threefry_seed(jnp.float32(1))
    with pytest.raises(TypeError, match="8, 16, 32 or 64"):
        words.threefry_random_bits(seed, 7, (4,))
    assert words.threefry_2x32(seed, jnp.zeros(3, "uint32")).shape == (3,)


def test_numbers_with_dtypes():
    for number in (
        literals.TypedInt(3, np.int8),
        literals.TypedFloat(1.5, np.float16),
        literals.TypedComplex(2j, np.complex64),
    ):
        assert jnp.asarray(number, number.dtype).dtype == number.dtype
        assert jnp.asarray(number, number.dtype) == number


def test_trees_are_compared():
    x = np.array([1, 2], np.float32)
    public_test_util.check_close({"a": x}, {"a": x + np.float32(1e-6)})
    with pytest.raises(AssertionError, match="the values"):
        public_test_util.check_close({"a": x}, {"a": x + 1})
    with pytest.raises(AssertionError, match="trees differ"):
        public_test_util.check_close({"a": x}, {"b": x})


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("int32", "complex64"), ("int64", "complex128"), ("float16", "complex64"), ("float64", "complex128")],
)
def test_complex_dtypes_of_others(dtype: str, expected: str):
    assert dtypes.to_complex_dtype(np.dtype(dtype)) == expected


def test_operands_meet_as_in_numpy():
    from shardwise._src.numpy import util

    assert [x.dtype.name for x in util.promote_dtypes_complex(1, np.float32(2))] == ["complex64"] * 2
    assert [x.dtype.name for x in util.promote_dtypes_inexact(1, np.int8(2))] == ["float32"] * 2
    assert [x.shape for x in util.promote_args("add", 1.0, np.ones((2, 3)))] == [(), (2, 3)]
    with pytest.raises(TypeError, match="mine requires ndarray or scalar"):
        util.check_arraylike("mine", [1])


def test_lines_and_scopes_of_what_is_traced():
    program = jax.make_jaxpr(lambda x: x + 1)(1.0)
    first = program.eqns[0].source_info
    assert source_info_util.summarize(first).startswith("test_names_for_libraries.py:")
    assert source_info_util.summarize(source_info_util.new_source_info()) == "unknown"

    def moved(x):
        with source_info_util.user_context(
            first.traceback, name_stack=source_info_util.new_name_stack("a").extend("b")
        ):
            assert str(source_info_util.current_name_stack()) == "a/b"
            return x * 2

    assert jax.make_jaxpr(moved)(1.0).eqns[0].source_info.traceback == first.traceback
    with jax.named_scope("outer"), source_info_util.extend_name_stack("inner"):
        assert str(source_info_util.current().name_stack) == "outer/inner"
        with source_info_util.reset_name_stack():
            assert not source_info_util.current_name_stack().stack


def test_variables_of_programs():
    new = gensym()
    var = new(jax.typeof(1.0))
    assert isinstance(var, Var) and var is not new(jax.typeof(1.0))
    assert isinstance({Effect()}, Effects.__origin__)  # type: ignore[attr-defined]
    tracers = []
    jax.jit(lambda x: tracers.append(x))(1.0)
    assert isinstance(tracers[0], partial_eval.DynamicJaxprTracer)


def test_names_that_core_shares_with_extend():
    names = ("DebugInfo", "Effect", "Effects", "find_top_trace", "gensym", "no_effects", "nonempty_axis_env_DO_NOT_USE")
    names += ("primal_dtype_to_tangent_dtype", "unsafe_am_i_under_a_jit_DO_NOT_USE", "unsafe_get_axis_names_DO_NOT_USE")
    for name in names:
        assert getattr(jax.core, name) is getattr(jax.extend.core, name)
    seen: list[bool] = []
    jax.jit(lambda x: seen.append(jax.core.unsafe_am_i_under_a_jit_DO_NOT_USE()) or x)(1.0)
    assert seen == [True]


def test_one_level_of_a_tree_with_keys():
    registry = jax.tree_util.default_registry
    assert registry.flatten_one_level_with_keys({"b": 1, "a": 2}) == (
        ((jax.tree_util.DictKey("a"), 2), (jax.tree_util.DictKey("b"), 1)),
        ("a", "b"),
    )
    assert registry.flatten_one_level_with_keys(3) is None


def test_scopes_of_explicit_transfers():
    x = np.ones(3)
    with jax.transfer_guard("disallow"):
        with INSIDE.config.explicit_device_put_scope():
            y = jnp.sin(x)
        with INSIDE.config.explicit_device_get_scope():
            assert float(y[0]) == pytest.approx(np.sin(1.0))
        with pytest.raises(jax.errors.JaxRuntimeError):
            jnp.sin(x)
    with (
        jax.transfer_guard("disallow_explicit"),
        INSIDE.config.explicit_device_put_scope(),
        pytest.raises(jax.errors.JaxRuntimeError),
    ):
        jnp.sin(x)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (1, "int32"),
        (1.5, "float32"),
        (True, "bool"),
        (np.ones(2), "float32"),
        ("float64", "float32"),
        (np.dtype("i8"), "int32"),
        (float, "float32"),
    ],
)
def test_the_dtype_of_values_and_names(x: Any, expected: str):
    assert dtypes.dtype(x) == expected


def test_backends_have_nothing_to_forget():
    first = jax.extend.backend.get_backend()
    jax.extend.backend.get_backend.cache_clear()  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]
    assert jax.extend.backend.get_backend() is first
