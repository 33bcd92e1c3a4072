"""Meshes with and without devices."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from shardwise.base.config import use_dialect
from shardwise.sharding import AbstractDevice, AbstractMesh, AxisType, Mesh, Topology, devices, make_mesh
from shardwise.sharding.device import Client
from shardwise.sharding.mesh import EMPTY_MESH

Auto, Explicit, Manual = AxisType.Auto, AxisType.Explicit, AxisType.Manual


def grid():
    return np.array(devices()).reshape(2, 4)


@pytest.fixture
def mesh():
    return Mesh(grid(), ("x", "y"))


def test_axis_type():
    assert [kind.value for kind in AxisType] == [1, 2, 3]
    assert (str(Auto), repr(Auto)) == ("AxisType.Auto", "Auto")


def test_texts(mesh):
    assert str(mesh) == "Mesh('x': 2, 'y': 4, axis_types=(Auto, Auto))"
    # as JAX 0.5.3 prints it
    assert repr(mesh) == (
        "Mesh(device_ids=array([[0, 1, 2, 3],\n       [4, 5, 6, 7]]), axis_names=('x', 'y'), axis_types=(Auto, Auto))"
    )
    assert repr(mesh.abstract_mesh) == "AbstractMesh('x': 2, 'y': 4, axis_types=(Auto, Auto))"
    assert str(mesh.update(axis_types=(Explicit, Auto))) == "Mesh('x': 2, 'y': 4, axis_types=(Explicit, Auto))"
    assert str(EMPTY_MESH) == "Mesh()" and repr(AbstractMesh((), ())) == "AbstractMesh((), axis_types=())"


def test_texts_of_the_latest_dialect_are_those_of_jax(mesh):
    jax = pytest.importorskip("jax")
    theirs = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
    with use_dialect("latest"):
        assert repr(mesh) == repr(theirs) and str(mesh) == str(theirs)
        assert repr(mesh.abstract_mesh) == repr(theirs.abstract_mesh)
        assert mesh.abstract_mesh.abstract_device == AbstractDevice("cpu", None, "cpu")
        assert mesh.abstract_mesh != AbstractMesh((2, 4), ("x", "y"))
        ours, other = make_mesh((2, 4), ("x", "y")), jax.make_mesh((2, 4), ("x", "y"))
        assert repr(ours) == repr(other) and ours.axis_types == (Explicit, Explicit)
        assert repr(EMPTY_MESH) == "Mesh(axis_sizes=(), axis_names=())"
        assert make_mesh((8,), ("x",), (Auto,)).axis_types == (Auto,)
    assert mesh.abstract_mesh is AbstractMesh((2, 4), ("x", "y"))


def test_fields(mesh):
    assert dict(mesh.shape) == {"x": 2, "y": 4} and type(mesh.shape).__name__ == "OrderedDict"
    assert mesh.shape_tuple == (("x", 2), ("y", 4)) and mesh.axis_sizes == (2, 4) and mesh.size == 8
    assert mesh.device_ids.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]] and mesh.device_list == tuple(devices())
    assert not mesh.empty and not mesh.is_multi_process and mesh.local_mesh is mesh
    assert mesh.local_devices == devices() and mesh.auto_axes == ("x", "y")
    assert mesh.explicit_axes == mesh.manual_axes == ()
    assert mesh.are_all_axes_auto and not mesh.are_all_axes_explicit and not mesh.are_all_axes_manual
    assert (mesh.axis_size("y"), mesh.axis_position("y"), mesh.axis_type("y")) == (4, 1, Auto)
    assert EMPTY_MESH.empty and EMPTY_MESH.size == 0
    assert Mesh(devices()[0], ()).size == 1 and Mesh(devices()[0], ()).is_scalar


def test_one_object_per_mesh(mesh):
    assert Mesh(grid().tolist(), ["x", "y"]) is mesh
    assert Mesh(grid(), ("x", "y"), (Auto, Auto)) is mesh and copy.deepcopy(mesh) is mesh
    assert mesh.update(axis_types=(Explicit, Auto)) != mesh and mesh.update(axis_names=("a", "b")) != mesh
    assert mesh.update(axis_names=("a", "b")).axis_names == ("a", "b")
    assert Mesh(grid()[::-1], ("x", "y")) != mesh
    assert mesh.abstract_mesh is mesh.abstract_mesh


def test_immutable(mesh):
    for dialect, error in {"seed": RuntimeError, "latest": AttributeError}.items():
        with use_dialect(dialect):
            with pytest.raises(error, match="cannot assign to field 'size'"):
                mesh.size = 3
            with pytest.raises(error, match="cannot delete field 'size'"):
                del mesh.size
    with pytest.raises(ValueError, match="read-only"):
        mesh.devices[0, 0] = None
    with pytest.raises(TypeError, match="cannot pickle 'Device' object"):
        pickle.dumps(mesh)


def test_one_dim_meshes():
    assert Mesh(devices(), "x") is Mesh(devices(), ("x",))
    assert Mesh(devices(), ("x",), Explicit).axis_types == (Explicit,)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (lambda: (devices(), ("x", "y")), ValueError, r"devices.ndim == 1 and len\(axis_names\) == 2"),
        (lambda: (devices(), (None,)), ValueError, r"cannot be None. Got: \(None,\)"),
        (lambda: (grid(), ("x", "x")), ValueError, "'x'.* more than once"),
        (lambda: (devices(), ("x",), 3), TypeError, "must be of type `jax.sharding.AxisType`"),
        (lambda: (devices(), ("x",), (3,)), TypeError, "must be of type `jax.sharding.AxisType`"),
        (lambda: (devices(), ("x",), (Auto, Auto)), ValueError, "Number of axis names should match"),
        (lambda: ([1, 2], ("x",)), TypeError, "takes devices"),
        (lambda: (devices()[:1] * 2, ("x",)), ValueError, "appears twice"),
    ],
)
def test_errors(arguments, error, text):
    with pytest.raises(error, match=text):
        Mesh(*arguments())


def test_make_mesh():
    assert make_mesh((2, 4), ("x", "y")) is Mesh(grid(), ("x", "y"))
    assert make_mesh((2,), ("x",)).device_ids.tolist() == [0, 1]
    assert make_mesh((2,), ("x",), devices=devices()[3:]).device_ids.tolist() == [3, 4]
    assert make_mesh((2,), ("x",), axis_types=Explicit).axis_types == (Explicit,)
    assert make_mesh((8,), "xy").axis_names == ("xy",)
    assert make_mesh((), ()).size == 1


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (
            ((4, 4), ("x", "y")),
            ValueError,
            r"Number of devices 8 must be >= the product of mesh_shape \(4, 4\).*--devices",
        ),
        (((2, 4), "xy"), ValueError, "devices.ndim == 2"),
        ((8, ("x",)), TypeError, "sequence of ints"),
        ((((4,),), ("x",)), ValueError, "sequence of ints"),
        (((-1, 4), ("x", "y")), ValueError, "at least 1"),
        (((2, 4), ("x", "x")), ValueError, "more than once"),
        (((2,), ("x",), (Auto,), (Auto,)), TypeError, "each once"),
    ],
)
def test_make_mesh_errors(arguments, error, text):
    with pytest.raises(error, match=text):
        make_mesh(*arguments)


def test_abstract_mesh():
    mesh = AbstractMesh((2, 4), ("x", "y"))
    assert AbstractMesh([2, 4], ["x", "y"]) is mesh and mesh.abstract_mesh is mesh
    assert pickle.loads(pickle.dumps(mesh)) is mesh
    assert mesh.update(axis_types=(Explicit, Auto)).explicit_axes == ("x",)
    assert mesh.update_axis_types({"y": Manual}).manual_axes == ("y",)
    assert mesh.size == 8 and dict(mesh.shape) == {"x": 2, "y": 4}
    for name in ("devices", "device_ids", "local_mesh", "local_devices", "is_multi_process"):
        with pytest.raises(ValueError, match=f"AbstractMesh does not implement {name}"):
            getattr(mesh, name)
    with pytest.raises(ValueError, match="does not implement __enter__"), mesh:
        pass
    with pytest.raises(TypeError, match="axis_names beside it"):
        AbstractMesh((("x", 2),), ("x",))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one name per axis"):
        AbstractMesh((2,), ("x", "y"))
    with pytest.raises(ValueError, match="'z' is no axis"):
        mesh.update_axis_types({"z": Manual})


def test_two_processes():
    theirs = Client(Topology(1, 2, 4)).devices()
    mesh = Mesh(np.array(theirs).reshape(2, 4), ("x", "y"))
    assert mesh.is_multi_process and mesh.local_mesh.axis_sizes == (1, 4)
    assert mesh.local_mesh.device_ids.tolist() == [[131072, 131073, 131074, 131075]]
    assert mesh.local_devices == theirs[4:]
    across = Mesh(np.array(theirs).reshape(2, 4).T, ("x", "y"))
    assert across.local_mesh.axis_sizes == (4, 1)
    order = [theirs[i] for i in (0, 4, 5, 1, 2, 3, 6, 7)]
    with pytest.raises(ValueError, match="contiguous subcube"):
        _ = Mesh(np.array(order).reshape(2, 4), ("x", "y")).local_mesh
    # strided over a dim: not contiguous either
    with pytest.raises(ValueError, match="contiguous subcube"):
        _ = Mesh(np.array([theirs[i] for i in (0, 4, 1, 5)]), ("x",)).local_mesh
