"""Specs of shard_map: empty trees, what may not stand in them, and the sharding that results wear."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.base.config import use_dialect
from shardwise.experimental.shard_map import shard_map as seed_shard_map
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P


@pytest.fixture
def mesh():
    return Mesh(np.array(sw.devices()[:4]).reshape(2, 2), ("x", "y"))


@pytest.mark.parametrize("shard_map", [sw.shard_map, seed_shard_map])
def test_none_is_an_empty_tree(mesh, shard_map):
    x = np.arange(8.0, dtype=np.float32)
    assert shard_map(lambda a: None, mesh=mesh, in_specs=P("x"), out_specs=None)(x) is None
    scaled = shard_map(lambda a, b: a * b, mesh=mesh, in_specs=(P("x"), None), out_specs=P("x"))(x, 2.0)
    np.testing.assert_array_equal(scaled, 2 * x)
    with pytest.raises(ValueError, match="out_specs"):
        shard_map(lambda a: a, mesh=mesh, in_specs=P("x"), out_specs=None)(x)
    with pytest.raises(ValueError, match="UNCONSTRAINED"):
        shard_map(lambda a: a, mesh=mesh, in_specs=P(P.UNCONSTRAINED), out_specs=P("x"))(x)


def test_an_abstract_mesh_needs_an_argument_that_has_devices(mesh):
    mapped = sw.shard_map(lambda a: a * 2, mesh=mesh.abstract_mesh, in_specs=P("x"), out_specs=P("x"))
    with pytest.raises(ValueError, match="AbstractMesh"):
        mapped(jnp.arange(8.0))
    split = NamedSharding(mesh, P("x"))
    assert mapped(sw.device_put(jnp.arange(8.0), split)).sharding == split
    other = NamedSharding(Mesh(np.array(sw.devices()[:4]), "x"), P("x"))
    with pytest.raises(ValueError, match="does not match the mesh shape"):
        mapped(sw.device_put(jnp.arange(8.0), other))


def test_results_lie_on_the_mesh_of_the_shard_map(mesh):
    other = NamedSharding(Mesh(np.array(sw.devices()[:4]), "z"), P("z"))
    mapped = sw.shard_map(lambda a: a, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    assert mapped(sw.device_put(jnp.arange(8.0), other)).sharding == NamedSharding(mesh, P("x"))


@pytest.mark.parametrize("spec", [P(), P("x"), P(None, "x")], ids=str)
def test_results_of_arrays_on_a_mesh_of_other_axes(mesh, spec):
    x = np.arange(16.0, dtype=np.float32).reshape(4, 4)
    for sizes, names in [((4,), ("x",)), ((4, 1), ("x", "y")), ((1, 2, 2), ("y", "x", "z"))]:
        other = Mesh(np.array(sw.devices()[:4]).reshape(sizes), names)
        for lies in (P(), P("x"), P(("x", "y")), P("y", "x")):
            placed = sw.device_put(x, NamedSharding(mesh, lies))
            found = sw.shard_map(lambda a: a * 2, mesh=other, in_specs=spec, out_specs=spec)(placed)
            np.testing.assert_array_equal(found, 2 * x)
            for shard in found.addressable_shards:
                np.testing.assert_array_equal(shard.data, 2 * x[shard.index])


def test_unchecked_types_do_not_say_where_values_vary(mesh):
    seen = []
    body = lambda a: seen.append(sw.typeof(a).vma) or a  # noqa: E731
    for check in (True, False):
        sw.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=check)(jnp.arange(8.0))
    assert seen == [{"x"}, set()]


def test_eager_bodies_print_each_value_once_today(mesh, shell):
    """In the seed era and under jit each device prints."""
    program = (
        "import numpy as np, shardwise as sw\n"
        "from shardwise.sharding import Mesh, PartitionSpec as P\n"
        "mesh = Mesh(np.array(sw.devices()[:4]).reshape(2, 2), ('x', 'y'))\n"
        "body = lambda a: sw.debug.print('{}', a.sum()) or a\n"
        "f = sw.shard_map(body, mesh=mesh, in_specs=P('x'), out_specs=P('x'))\n"
        "f(np.ones(4)); print('jit'); sw.jit(f)(np.ones(4))\n"
    )
    printed = shell("-c", program, JAX_NUM_CPU_DEVICES="4", SHARDWISE_DIALECT="latest").stdout.split()
    assert printed == ["2.0"] * 2 + ["jit"] + ["2.0"] * 4


@pytest.mark.parametrize("shard_map", [sw.shard_map, seed_shard_map])
def test_eager_bodies_branch_on_what_all_devices_agree_on(mesh, shard_map):
    def body(x):
        total = sw.lax.psum(x, ("x", "y"))
        assert float(total.sum()) == 6.0
        return x if total.sum() < 0 else -x * int(sw.lax.psum(sw.lax.axis_index("x"), "x"))

    mapped = shard_map(body, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
    np.testing.assert_array_equal(mapped(jnp.arange(4.0).reshape(2, 2)), [[0, -1], [-2, -3]])
    uneven = shard_map(lambda x: x if x.sum() < 1 else -x, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    for refused in (uneven, sw.jit(mapped)):
        with pytest.raises(
            sw.errors.TracerBoolConversionError if refused is uneven else sw.errors.ConcretizationTypeError
        ):
            refused(jnp.arange(4.0).reshape(2, 2))


def test_a_constraint_inside_names_no_manual_axis(mesh):
    body = lambda x: sw.lax.with_sharding_constraint(x, NamedSharding(mesh, P("x", "y")))  # noqa: E731
    for axes in ({"x"}, {"x", "y"}):
        mapped = sw.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names=axes, check_vma=False)
        with pytest.raises(ValueError, match="contains a manual axes"):
            sw.jit(mapped)(jnp.ones((4, 4)))


def test_axes_that_split_the_dim_of_a_vmap_take_no_part_in_derivatives(mesh):
    x = jnp.arange(16.0).reshape(4, 4)
    f = sw.shard_map(lambda x: jnp.sin(x.sum()), mesh=mesh, in_specs=P("y"), out_specs=P(), check_vma=False)
    np.testing.assert_allclose(sw.vmap(sw.grad(f), spmd_axis_name="x")(x), sw.vmap(sw.grad(f))(x), rtol=1e-6)


def test_automatic_axes_on_results_of_the_seed_era(mesh):
    x = sw.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P("x", "y")))
    mapped = seed_shard_map(lambda a: a * 2, mesh, P("x"), P("x"), auto=frozenset({"y"}))
    assert sw.jit(mapped)(x).sharding.spec == P("x")


def test_in_shardings_may_be_a_list(mesh):
    split = NamedSharding(mesh, P("x"))
    assert sw.jit(lambda x: x, in_shardings=[split])(jnp.ones(4)).sharding == split


@pytest.mark.parametrize(
    ("dialect", "specs"), [("seed", ("in_names", "out_names")), ("latest", ("in_specs", "out_specs"))]
)
def test_programs_show_specs_as_jax_does(mesh, dialect, specs):
    with use_dialect(dialect):
        f = sw.shard_map(lambda x: x * 2, mesh=mesh, in_specs=P(None, "x"), out_specs=P(None, "x"))
        (eqn,) = sw.make_jaxpr(sw.vmap(f, spmd_axis_name="y"))(jnp.ones((2, 4, 4))).eqns
        expected = {0: ("y",), 2: ("x",)} if dialect == "seed" else P("y", None, "x")
        for name in specs:
            assert eqn.params[name] == (expected,)
            assert f"{name}=({expected}," in str(eqn)
        assert len(eqn.params["jaxpr"].eqns) == 1


def _placed(mesh, spec):
    return sw.device_put(np.arange(8, dtype=np.float32), sw.NamedSharding(mesh, spec))


# Axis types, in_specs, axes that become manual, how the argument lies; and whether JAX 0.10.2 takes it.
ENTERING = [
    ("EE", P("x"), None, None, False),
    ("EE", P(), None, None, True),
    ("EE", P("x"), None, P(), False),
    ("EE", P("x"), None, P("y"), False),
    ("EE", P("x"), None, P("x"), True),
    ("EE", P("x"), {"x"}, None, True),
    ("EE", P("x"), {"x"}, P(), True),
    ("EE", P("y"), {"y"}, P("x"), True),
    ("EE", P(), {"x"}, P("x"), True),
    ("EA", P("x"), None, None, True),
    ("EA", P("y"), None, P("x"), True),
    ("EA", P(), None, P("x"), True),
    ("AA", P("x"), None, None, True),
    ("AA", P("x"), None, P("y"), True),
]  # fmt: skip


@pytest.mark.parametrize("way", ["eager", "jit", "traced"])
def test_specs_against_the_types_of_arguments_over_explicit_axes(way):
    kinds = {"E": sw.sharding.AxisType.Explicit, "A": sw.sharding.AxisType.Auto}
    for types, spec, manual, lies, taken in ENTERING:
        with use_dialect("latest"):
            mesh = sw.make_mesh((4, 2), ("x", "y"), axis_types=tuple(kinds[t] for t in types))
            with sw.set_mesh(mesh):
                names: dict[str, Any] = {} if manual is None else {"axis_names": manual}
                f = sw.shard_map(lambda x: x * 2, in_specs=spec, out_specs=spec, **names)
                x = np.arange(8, dtype=np.float32) if lies is None else _placed(mesh, lies)
                call = {"eager": f, "jit": sw.jit(f), "traced": sw.jit(lambda x, f=f: f(x * 1))}[way]
                if taken:
                    np.testing.assert_array_equal(np.asarray(call(x)), 2 * np.arange(8), err_msg=f"{types} {spec}")
                else:
                    with pytest.raises(
                        ValueError, match=r"in_specs passed to shard_map.*does not match the specs of the input"
                    ):
                        call(x)


@pytest.mark.parametrize("spmd", [None, "x"])
def test_specs_against_types_where_a_vmap_has_the_other_axis(spmd):
    with use_dialect("latest"):
        mesh = sw.make_mesh((4, 2), ("x", "y"), axis_types=(sw.sharding.AxisType.Explicit,) * 2)
        with sw.set_mesh(mesh):
            x = sw.device_put(
                np.ones((4, 8), np.float32), sw.NamedSharding(mesh, P("x" if spmd is None else None, "y"))
            )
            for spec, taken in ((P("y"), True), (P(), False)):
                f = sw.shard_map(lambda x: x * 2, in_specs=spec, out_specs=spec, axis_names={"y"})
                call = sw.jit(sw.vmap(f, spmd_axis_name=spmd))
                if taken:
                    assert float(call(x).sum()) == 64.0
                else:
                    with pytest.raises(ValueError, match="does not match the specs of the input"):
                        call(x)


def test_a_tree_of_out_specs_that_does_not_fit_names_the_array():
    mesh = Mesh(np.array(sw.devices()[:8]), ("x",))
    call = sw.shard_map(lambda x: x, mesh=mesh, in_specs=P("x"), out_specs=(P("x"), P("x")))
    with pytest.raises(ValueError, match=r"the full tree has an array of type f32\[1\]"):
        call(np.arange(8.0, dtype=np.float32))
    placed = sw.jit(lambda x: x, out_shardings=(NamedSharding(mesh, P("x")), None))
    with pytest.raises(ValueError, match=r"the full tree has an array of type f32\[8\]"):
        placed(np.arange(8.0, dtype=np.float32))


def test_automatic_axes_leave_a_dim_that_manual_ones_split_to_the_end() -> None:
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(2, 2, 2), ("x", "y", "z"))
    x = np.arange(8.0, dtype=np.float32).reshape(2, 2, 2)
    spread = sw.device_put(x, NamedSharding(mesh, P("x", "z", "y")))
    spec = P(None, "x", "z")
    doubled = sw.shard_map(lambda a: a * 2, mesh=mesh, in_specs=spec, out_specs=spec, axis_names={"x", "z"})
    np.testing.assert_array_equal(sw.jit(doubled)(spread), x * 2)


# name: what is computed of x, f (shard_map over a line of four devices) and g (over the rows of the mesh); mesh and spec of the result,
# None where x's spec decides, too
OVER_A_LINE = {
    "itself": (lambda x, f, g: f(x), "line", P("i")),
    "what follows": (lambda x, f, g: jnp.sin(f(x)).T, "line", P(None, "i")),
    "a constraint": (lambda x, f, g: sw.lax.with_sharding_constraint(x, f.split) * 2, "line", P("i")),
    "in a loop": (lambda x, f, g: sw.lax.fori_loop(0, 2, lambda _, c: f(c), x), "line", P("i")),
    "beside an argument": (lambda x, f, g: f(x) + x, "mesh", None),
    "the last of two": (lambda x, f, g: g(f(x)), "mesh", P("x")),
}


@pytest.mark.parametrize("name", OVER_A_LINE)
@pytest.mark.parametrize("spec", [P("x", "y"), P("x"), P(("y", "x"))])
def test_results_wear_the_mesh_that_the_program_named_last(mesh, name, spec):
    compute, wanted, layout = OVER_A_LINE[name]
    line = Mesh(mesh.devices.ravel(), "i")
    f = sw.shard_map(lambda v: v * 2, mesh=line, in_specs=P("i"), out_specs=P("i"))
    cast(Any, f).split = NamedSharding(line, P("i"))
    g = sw.shard_map(lambda v: v * 2, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    got, kept = sw.jit(lambda x: (compute(x, f, g), x))(sw.device_put(x, NamedSharding(mesh, spec)))
    assert isinstance(got.sharding, NamedSharding) and got.sharding.mesh is {"line": line, "mesh": mesh}[wanted]
    assert layout is None or got.sharding.spec == layout
    assert kept.sharding == NamedSharding(mesh, spec)
    np.testing.assert_allclose(got, compute(x, f, g), rtol=1e-6)


def test_a_result_on_a_line_goes_back_to_a_mesh(mesh):
    """No spec of the argument's mesh says the layout of what the program names."""
    line = Mesh(mesh.devices.ravel(), "i")
    x = sw.device_put(np.arange(8, dtype=np.float32), NamedSharding(line, P("i")))
    got = sw.jit(sw.shard_map(lambda v: v * 2, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(x)
    assert got.sharding == NamedSharding(mesh, P("x"))
