"""The current mesh: two independent, thread-local registers.

The *context mesh* (an abstract mesh and, beside it, a concrete one) is set by `use_mesh` and `set_mesh`; bare specs,
default placement and explicit types read it. The *legacy stack* is pushed by `with mesh:` and read by `pjit` and
`with_sharding_constraint`. Both are part of `context_token()`.
"""

from __future__ import annotations

import opcode
import sys
from types import FrameType
from typing import Any

from shardwise.base import config
from shardwise.base.config import Override, Setting
from shardwise.sharding.base_mesh import EMPTY_ABSTRACT_MESH, AbstractMesh, AxisType
from shardwise.sharding.mesh import EMPTY_MESH, Mesh, legacy_stack

_abstract: Setting[AbstractMesh] = Setting("abstract_mesh", EMPTY_ABSTRACT_MESH)
_concrete: Setting[Mesh] = Setting("concrete_mesh", EMPTY_MESH)
# The number of traces being recorded in this thread, inside which `set_mesh` has no meaning. The tracer sets it.
tracing: Setting[bool] = Setting("tracing", False, traced=False)


def get_abstract_mesh() -> AbstractMesh:
    """The abstract context mesh; the empty one outside of any context.

    >>> jax.sharding.get_abstract_mesh().empty
    True
    """
    return _abstract.get()


def get_concrete_mesh() -> Mesh:
    """The concrete context mesh; the empty one outside of any context.

    >>> jax.sharding.get_concrete_mesh().empty
    True
    """
    return _concrete.get()


def get_mesh() -> Mesh:
    """The concrete context mesh, for code outside of `jit`.

    Raises:
        ValueError: called while a function is traced.

    >>> with jax.set_mesh(jax.make_mesh((2,), ("x",))):
    ...     print(jax.sharding.get_mesh().axis_names)
    ('x',)
    """
    if tracing.get():
        raise ValueError(
            "`get_mesh` can only be used outside of `jax.jit`. Maybe you want `jax.sharding.get_abstract_mesh()`?"
        )
    return _concrete.get()


def legacy_mesh() -> Mesh:
    """The mesh of the innermost `with mesh:`; the empty one outside.

    >>> with jax.make_mesh((2,), ("x",)):
    ...     print(jax.sharding.legacy_mesh().axis_names)
    ('x',)
    """
    stack = legacy_stack.get()
    return stack[-1] if stack else EMPTY_MESH


def _both(mesh: Mesh) -> dict[Setting[Any], Any]:
    return {_abstract: mesh.abstract_mesh, _concrete: mesh}


class _MeshContext(Override):
    """Sets the context mesh in the entering thread; `with ... as mesh` gives the mesh."""

    __slots__ = ("mesh",)

    def __init__(self, mesh: Any, values: dict[Setting[Any], Any]):
        super().__init__(values)
        self.mesh = mesh

    def __enter__(self) -> Any:
        super().__enter__()
        return self.mesh

    def _recreate_cm(self) -> _MeshContext:
        return _MeshContext(self.mesh, self._values)


def use_mesh(mesh: Mesh) -> _MeshContext:
    """A context manager under which `mesh` is the context mesh.

    Raises:
        ValueError: `mesh` is no `Mesh`.

    >>> with jax.sharding.use_mesh(jax.make_mesh((2,), ("x",))):
    ...     print(jax.sharding.get_abstract_mesh().axis_names)
    ('x',)
    """
    return _MeshContext(_check_mesh(mesh, "use_mesh"), _both(mesh))


def todays_set_mesh(mesh: Mesh | None) -> SetMesh:
    """`jax.set_mesh`: set the context mesh of this thread; the result is a context manager whose exit restores the meshes of before.

    Raises:
        ValueError: `mesh` is neither a `Mesh` nor None, has Manual axes, or a function is being traced.

    >>> with jax.set_mesh(jax.make_mesh((2,), ("x",))):
    ...     print(jax.sharding.get_abstract_mesh().axis_names)
    ('x',)
    """
    if tracing.get():
        raise ValueError("`set_mesh` can only be used outside of `jax.jit`.")
    return SetMesh(EMPTY_MESH if mesh is None else _check_mesh(mesh, "set_mesh"))


def set_mesh(mesh: Mesh | None) -> Any:
    """`jax.sharding.set_mesh`, which both eras have: in JAX 0.5 it returns the mesh that was set before (None if there was none).

    In a `with` statement, where that mesh would be of no use, it is a context manager in either dialect.

    Raises:
        ValueError: as `todays_set_mesh`.

    >>> with jax.sharding.set_mesh(jax.make_mesh((2,), ("x",))):
    ...     print(jax.sharding.get_mesh().size)
    2
    """
    before = _concrete.get()
    context = todays_set_mesh(mesh)
    if config.dialect.meshes.set_mesh_is_context or _is_entered(sys._getframe(1)):
        return context
    return None if before is EMPTY_MESH else before


def _is_entered(frame: FrameType) -> bool:
    """Whether the call that this frame is in gives a `with` statement its context manager."""
    code, at = frame.f_code.co_code, frame.f_lasti + 2
    while at < len(code) and code[at] == _CACHE:
        at += 2
    return at < len(code) and code[at] in _ENTERS


_CACHE = opcode.opmap.get("CACHE", -1)
_ENTERS = [opcode.opmap[name] for name in ("BEFORE_WITH", "BEFORE_ASYNC_WITH") if name in opcode.opmap]


class SetMesh:
    """The result of `set_mesh`: the mesh is set already; leaving the context restores the previous one."""

    __slots__ = ("_before", "mesh")

    def __init__(self, mesh: Mesh):
        self.mesh = mesh
        self._before = (_abstract.set(mesh.abstract_mesh), _concrete.set(mesh))

    def __enter__(self) -> Mesh:
        return self.mesh

    def __exit__(self, *exc: object) -> None:
        _abstract.set(self._before[0])
        _concrete.set(self._before[1])


def _check_mesh(mesh: Any, who: str) -> Mesh:
    if not isinstance(mesh, Mesh):
        raise ValueError(f"Expected mesh of type `jax.sharding.Mesh`. {who} got {mesh} of type {type(mesh).__name__}.")
    if AxisType.Manual in mesh.axis_types:
        raise ValueError(
            f"mesh {mesh} contains manual axes which is not allowed when using `jax.{who}`. "
            "Manual axes exist inside shard_map only; set the mesh with Auto or Explicit axes."
        )
    return mesh


def use_abstract_mesh(mesh: Any) -> _MeshContext:
    """A context manager that sets only the abstract context mesh, as traced bodies do.

    Raises:
        ValueError: `mesh` is no `AbstractMesh`, or its size differs from that of the mesh in context.

    >>> with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((2,), ("x",))):
    ...     print(jax.sharding.get_abstract_mesh().axis_names)
    ('x',)
    """
    if not isinstance(mesh, AbstractMesh):
        raise ValueError(
            "Expected mesh of type `jax.sharding.AbstractMesh`. "
            f"use_abstract_mesh got {mesh} of type {type(mesh).__name__}."
        )
    current = _abstract.get()
    if not mesh.empty and not current.empty and current.size != mesh.size:
        raise ValueError(
            f"use_abstract_mesh cannot change the size of the mesh. Got new mesh: {mesh} with size={mesh.size} and "
            f"prev mesh: {current} with size={current.size}"
        )
    return abstract_mesh_context(mesh)


def abstract_mesh_context(mesh: AbstractMesh) -> _MeshContext:
    """A context manager that sets only the abstract context mesh, of any size."""
    return _MeshContext(mesh, {_abstract: mesh})
