"""The two registers of current meshes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise.base.config import context_token, use_dialect
from shardwise.sharding import AbstractMesh, AxisType, Mesh, devices, make_mesh
from shardwise.sharding.context import (
    get_abstract_mesh,
    get_concrete_mesh,
    get_mesh,
    legacy_mesh,
    set_mesh,
    tracing,
    use_abstract_mesh,
    use_mesh,
)
from shardwise.sharding.mesh import EMPTY_MESH


@pytest.fixture
def mesh():
    return make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


@pytest.fixture
def other():
    return make_mesh((8,), ("z",), axis_types=(AxisType.Auto,))


@pytest.fixture(autouse=True)
def clean():
    yield
    assert get_concrete_mesh() is EMPTY_MESH and legacy_mesh() is EMPTY_MESH and get_abstract_mesh().empty


def test_use_mesh_nests(mesh, other):
    assert get_mesh().empty and get_abstract_mesh().empty
    with use_mesh(mesh) as entered:
        assert entered is mesh is get_mesh() is get_concrete_mesh()
        assert get_abstract_mesh() is mesh.abstract_mesh
        assert legacy_mesh().empty  # the registers are separate
        with use_mesh(other):
            assert get_mesh() is other
        assert get_mesh() is mesh


def test_making_a_context_changes_nothing(mesh):
    context = use_mesh(mesh)
    assert get_mesh().empty
    with context, context:
        assert get_mesh() is mesh

    @use_mesh(mesh)
    def decorated():
        return get_mesh()

    assert decorated() is mesh


def test_set_mesh_of_the_seed_returns_what_was_set(mesh, other):
    assert set_mesh(mesh) is None
    assert get_mesh() is mesh
    assert set_mesh(other) is mesh
    assert set_mesh(None) is other
    assert get_abstract_mesh().empty


def test_set_mesh_of_the_latest_dialect_sets_and_restores(mesh, other):
    with use_dialect("latest"):
        setter = set_mesh(mesh)
        assert get_mesh() is mesh
        with set_mesh(other):
            assert get_mesh() is other
            with set_mesh(None):
                assert get_mesh().empty
        assert get_mesh() is mesh
        setter.__exit__(None, None, None)


def test_errors(mesh):
    manual = Mesh(devices(), "x", AxisType.Manual)
    for enter in (use_mesh, set_mesh):
        for bad in (mesh.abstract_mesh, 3):
            with pytest.raises(ValueError, match=r"Expected mesh of type `jax.sharding.Mesh`"):
                enter(bad)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="contains manual axes"):
            enter(manual)
    with pytest.raises(ValueError, match=r"Expected mesh of type `jax.sharding.AbstractMesh`"):
        use_abstract_mesh(mesh)
    with tracing.override(True):
        with pytest.raises(ValueError, match=r"`set_mesh` can only be used outside"):
            set_mesh(mesh)
        with pytest.raises(ValueError, match=r"`get_mesh` can only be used outside"):
            get_mesh()


def test_use_abstract_mesh(mesh):
    small = AbstractMesh((2,), ("q",))
    with use_abstract_mesh(small):
        assert get_abstract_mesh() is small and get_concrete_mesh().empty
    with use_mesh(mesh):
        with pytest.raises(ValueError, match=r"cannot change the size.*size=2.*size=8"):
            use_abstract_mesh(small)
        with use_abstract_mesh(AbstractMesh((8,), ("q",))):
            assert get_abstract_mesh().axis_names == ("q",)


def test_with_mesh_is_a_register_of_its_own(mesh, other):
    with mesh as entered:
        assert entered is mesh is legacy_mesh()
        assert get_mesh().empty and get_abstract_mesh().empty
        with other, mesh, mesh:
            assert legacy_mesh() is mesh
        with use_mesh(other), mesh:
            assert get_mesh() is other and legacy_mesh() is mesh

    @mesh
    def decorated():
        return legacy_mesh()

    assert decorated() is mesh
    with pytest.raises(RuntimeError, match="inside"), mesh:
        raise RuntimeError("inside")
    with use_dialect("latest"), pytest.warns(DeprecationWarning, match="set_mesh"), mesh:
        pass


def test_contexts_are_part_of_the_token(mesh, other):
    start = context_token()
    with use_mesh(mesh):
        first = context_token()
        with use_mesh(other):
            second = context_token()
        with mesh:
            third = context_token()
    with mesh:
        fourth = context_token()
    assert len({start, first, second, third, fourth}) == 5
    assert context_token() is start
    with use_mesh(mesh):
        assert context_token() is first


def test_contexts_belong_to_one_thread(mesh):
    seen = []
    with use_mesh(mesh), mesh:
        thread = threading.Thread(target=lambda: seen.extend([get_mesh(), legacy_mesh()]))
        thread.start()
        thread.join()
    assert seen == [EMPTY_MESH, EMPTY_MESH]


# Results on a mesh of one device in context. What was committed to the device stays there.
ON_ONE_DEVICE: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "made": lambda jax, jnp, free, held: jnp.ones(3),
    "made under jit": lambda jax, jnp, free, held: jax.jit(lambda: jnp.ones(3))(),
    "a key": lambda jax, jnp, free, held: jax.random.key(0),
    "of NumPy's": lambda jax, jnp, free, held: jnp.sin(np.ones(3)),
    "of uncommitted": lambda jax, jnp, free, held: free + 1,
    "a copy": lambda jax, jnp, free, held: free.copy(),
    "a gradient": lambda jax, jnp, free, held: jax.grad(lambda x: (x * x).sum())(free),
    "handed on": lambda jax, jnp, free, held: jnp.asarray(free),
    "of committed": lambda jax, jnp, free, held: held + 1,
    "of committed under jit": lambda jax, jnp, free, held: jax.jit(lambda x: x * 2)(held),
    "of both": lambda jax, jnp, free, held: free * held,
}


@pytest.mark.parametrize("how", ON_ONE_DEVICE)
def test_a_mesh_of_one_device_in_context_places_results_as_in_jax(how: str) -> None:
    theirs = pytest.importorskip("jax")

    def placed(jax: Any, jnp: Any) -> tuple[str, bool]:
        mesh = jax.make_mesh(
            (1, 1), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2, devices=jax.devices()[:1]
        )
        free, held = jnp.ones(4), jax.device_put(np.ones(4, np.float32), jax.devices()[0])
        with jax.set_mesh(mesh):
            x = ON_ONE_DEVICE[how](jax, jnp, free, held)
        return type(x.sharding).__name__, x.committed

    with use_dialect("latest"):
        ours = placed(sw, sw.numpy)
    assert ours == placed(theirs, theirs.numpy)
