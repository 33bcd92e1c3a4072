"""`Exported`: a function that is traced once, carried as bytes, and called in another process or by another program.

In: a jitted function and the types of its arguments, whose dims may be symbolic. Out: an `Exported`, which `jit`, `grad` and `vmap` go
through. Its bytes hold no custom derivatives, so each order of `vjp` is a program of its own in them, as in JAX's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, Final, NoReturn

from shardwise.base.caches import Bounded
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tree import (
    PyTreeDef,
    equality_errors,
    keystr,
    tree_flatten,
    tree_leaves_with_path,
    tree_map,
    tree_unflatten,
)
from shardwise.base.tree_data import tree_as_data, tree_from_data
from shardwise.base.wrapping import name_of
from shardwise.engine.array import ArrayImpl
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.export.bodies import Body, LoadedBody, Part, Portable, Sizes, TracedBody
from shardwise.export.codec import NotSerializable, from_bytes, to_bytes
from shardwise.export.dims import SymbolicDim, evaluate_size
from shardwise.export.safety_checks import DisabledSafetyCheck
from shardwise.export.scopes import SymbolicScope, solve_sizes
from shardwise.export.templates import array_type
from shardwise.ir import ShapedArray, eval_program
from shardwise.ops.rules.convert import as_value
from shardwise.sharding import AbstractMesh, Mesh, NamedSharding, Sharding
from shardwise.sharding.backend import default_backend
from shardwise.transforms.derivatives.autodiff import vjp as pullback_of
from shardwise.transforms.derivatives.custom_vjp import custom_vjp
from shardwise.transforms.jit.jit import jit
from shardwise.transforms.jit.wrapped import JitWrapped

minimum_supported_calling_convention_version: Final = 9
maximum_supported_calling_convention_version: Final = 10


@dataclass(frozen=True, eq=False, repr=False)
class Exported:
    """A function traced for given types, which goes into bytes.

    Attributes:
        fun_name: the function's name.
        in_tree: the tree of (args, kwargs).
        in_avals: the arguments' types; dims may be symbolic.
        out_tree: the tree of the results.
        out_avals: the results' types, whose dims are expressions of the arguments'.
        nr_devices: how many devices its shardings name.
        platforms: where it may be called.
        disabled_safety_checks: the checks that its calls leave out.
        ordered_effects: always empty.
        unordered_effects: always empty.
        in_shardings_hlo: None for each argument, as in JAX 0.10.2; see `in_shardings_jax`.
        out_shardings_hlo: None for each result; see `out_shardings_jax`.
        calling_convention_version: that of JAX 0.10.2.
        module_kept_var_idx: the arguments that a call reads: all.
        uses_global_constants: whether dims are symbolic, or the platforms several.
    """

    fun_name: str
    in_tree: PyTreeDef
    in_avals: tuple[ShapedArray, ...]
    out_tree: PyTreeDef
    out_avals: tuple[ShapedArray, ...]
    _in_named_shardings: tuple[NamedSharding | None, ...]
    _out_named_shardings: tuple[NamedSharding | None, ...]
    nr_devices: int
    platforms: tuple[str, ...]
    disabled_safety_checks: tuple[DisabledSafetyCheck, ...]
    _body: Body
    _get_vjp: Callable[[Exported], Exported] | None
    ordered_effects: tuple[Any, ...] = ()
    unordered_effects: tuple[Any, ...] = ()
    calling_convention_version: int = maximum_supported_calling_convention_version
    _has_named_shardings: bool = True
    _functions: Bounded[Any, Any] = dataclasses.field(default_factory=lambda: Bounded(64))

    def __deepcopy__(self, memo: Any) -> Exported:
        return self  # nothing of it changes

    @property
    def in_shardings_hlo(self) -> tuple[None, ...]:
        """None for each argument."""
        return (None,) * len(self.in_avals)

    @property
    def out_shardings_hlo(self) -> tuple[None, ...]:
        """None for each result."""
        return (None,) * len(self.out_avals)

    @property
    def module_kept_var_idx(self) -> tuple[int, ...]:
        """The positions of all arguments."""
        return tuple(range(len(self.in_avals)))

    @property
    def uses_global_constants(self) -> bool:
        """Whether dims are symbolic, or the platforms several."""
        return len(self.platforms) > 1 or bool(_names(self.in_avals))

    @property
    def mlir_module_serialized(self) -> bytes:
        """Refused: see `mlir_module`."""
        return self.mlir_module()

    def mlir_module(self, serialized: bool = True) -> NoReturn:
        """Refused: programs have no MLIR form.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "Exported.mlir_module: programs have no MLIR form here. Print them with make_jaxpr(exported.call)(*args), "
            "carry them with serialize()."
        )

    def __repr__(self) -> str:
        return f"Exported(fun_name={self.fun_name}, ...)"

    def in_shardings_jax(self, mesh: Mesh | AbstractMesh) -> Sequence[Sharding | None]:
        """The arguments' shardings over `mesh`, None where nothing was said.

        Raises:
            ValueError: its axes are not those that the function was exported with.
        """
        return tuple(_over(s, mesh) for s in self._in_named_shardings)

    def out_shardings_jax(self, mesh: Mesh | AbstractMesh) -> Sequence[Sharding | None]:
        """The results' shardings over `mesh`; as `in_shardings_jax`."""
        return tuple(_over(s, mesh) for s in self._out_named_shardings)

    def has_vjp(self) -> bool:
        """Whether `vjp` gives one."""
        return self._get_vjp is not None

    def vjp(self) -> Exported:
        """The function that takes arguments and cotangents of results, flat, and gives the cotangents of the arguments.

        Raises:
            ValueError: the bytes that this was loaded from hold none.
        """
        if self._get_vjp is None:
            raise ValueError(
                f"No VJP is available: {self.fun_name} was serialized without one. Serialize it with vjp_order=1, or more for derivatives "
                "of derivatives."
            )
        if "vjp" not in self._functions:
            self._functions["vjp"] = self._get_vjp(self)
        return self._functions["vjp"]

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """The function as bytes, for `deserialize`.

        Args:
            vjp_order: how often the loaded function can be differentiated.

        Raises:
            NotImplementedError: it calls functions of this process (callbacks), or has no program that holds for all sizes of its symbolic
                dims.
            ValueError: the tree of arguments or results has a class that is not registered, or there is no VJP of that order.
        """
        try:
            return to_bytes(self._data(vjp_order))
        except NotSerializable as error:
            raise NotImplementedError(
                f"serialize: {self.fun_name} holds what only this process has ({error}). Leave callbacks out of it."
            ) from error

    def _data(self, vjp_order: int) -> dict[str, Any]:
        portable = self._body.portable()
        return {
            "name": self.fun_name,
            "trees": [tree_as_data(self.in_tree), tree_as_data(self.out_tree)],
            "types": (self.in_avals, self.out_avals),
            "shardings": (self._in_named_shardings, self._out_named_shardings),
            "devices": self.nr_devices,
            "platforms": self.platforms,
            "checks": tuple(c.description for c in self.disabled_safety_checks),
            "program": (
                tuple(portable.main),
                tuple((k, v if isinstance(v, str) else tuple(v)) for k, v in portable.special),
            ),
            "vjp": self.vjp()._data(vjp_order - 1) if vjp_order > 0 else None,
        }

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, also inside of `jit`, `grad` and `vmap`.

        Args:
            args: arrays of the exported types, in the exported tree; symbolic dims take any sizes that fit.
            kwargs: those by name.

        Raises:
            ValueError: another tree, rank, dtype or size, another platform or number of devices.
        """
        leaves, tree = tree_flatten((args, kwargs))
        if tree != self.in_tree:
            raise ValueError(_tree_differences(self, tree))
        values = [as_value(x) for x in leaves]
        self._check_place(values)
        sizes = self._sizes([v.aval for v in values])
        return tree_unflatten(self.out_tree, self._function(sizes)(*values))

    def _check_place(self, values: Sequence[Any]) -> None:
        placed_arrays = [v for v in values if isinstance(v, ArrayImpl) and v.committed]
        platform = placed_arrays[0].sharding.device_list[0].platform if placed_arrays else default_backend()
        is_known = platform in self.platforms or (platform == "gpu" and {"cuda", "rocm"} & set(self.platforms))
        if not is_known and DisabledSafetyCheck.platform() not in self.disabled_safety_checks:
            raise ValueError(
                f"Function '{self.fun_name}' was exported for platforms '{self.platforms}' but it is used on '{(platform,)}'. Export it "
                f"with platforms=[..., {platform!r}], or with disabled_checks=[DisabledSafetyCheck.platform()]."
            )
        if self.nr_devices > 1 and all(isinstance(v, ArrayImpl) or not hasattr(v, "_trace") for v in values):
            here = max([1, *[len(v.sharding.device_list) for v in placed_arrays]])
            has_tracers = any(not isinstance(v, ArrayImpl) and v.ndim for v in values)
            if here != self.nr_devices and not has_tracers:
                raise ValueError(
                    f"Function {self.fun_name} was exported for {self.nr_devices} devices and is called in a context with {here} devices, "
                    "which is not allowed. Place its arguments by in_shardings_jax(mesh)."
                )

    def _sizes(self, avals: Sequence[ShapedArray]) -> dict[str, int]:
        """The values of the symbolic dims; ValueError where a type does not fit."""
        names = [_argument(path) for path, _ in tree_leaves_with_path(tree_unflatten(self.in_tree, [0] * len(avals)))]
        for expected_aval, aval, name in zip(self.in_avals, avals, names, strict=True):
            if expected_aval.ndim != aval.ndim:
                raise ValueError(
                    f"Rank mismatch for {name}: expected {expected_aval.shape} and called with {aval.shape}"
                )
            if expected_aval.dtype != aval.dtype:
                raise ValueError(
                    f"Dtype mismatch for {name}: expected {expected_aval.dtype} and called with {aval.dtype}"
                )
            for i, (dim, n) in enumerate(zip(expected_aval.shape, aval.shape, strict=True)):
                if not isinstance(dim, SymbolicDim) and dim != n:
                    raise ValueError(
                        f"Shape mismatch for {name}.shape[{i}] (expected same constant): expected {expected_aval.shape} and called "
                        f"with {aval.shape}"
                    )
        return solve_sizes([t.shape for t in self.in_avals], [t.shape for t in avals], names)

    def _function(self, sizes: Sizes) -> Callable[..., Any]:
        """The flat function for these sizes, with the derivative that `vjp` gives."""
        key = tuple(sorted(sizes.items()))
        known_function = self._functions.get(key)
        if known_function is not None:
            return known_function

        def run(*leaves: Any) -> Any:
            program, constants = self._body.program(sizes)
            return tuple(eval_program(program, [*constants, *leaves]))

        run.__name__ = run.__qualname__ = self.fun_name
        # On a mesh also the arguments that nothing reads say which devices compute.
        function = custom_vjp(jit(run, keep_unused=self.nr_devices > 1))

        def forward(*leaves: Any) -> Any:
            return function(*leaves), leaves

        def backward(leaves: Any, cotangents: Any) -> Any:
            return tuple(self.vjp().call(*leaves, *cotangents))

        function.defvjp(forward, backward)
        self._functions[key] = function
        return function


def _is_ours(fun: FunctionType) -> bool:
    """Whether this library defines `fun`."""
    return fun.__module__.partition(".")[0] == __name__.partition(".")[0]


def export(
    fun_jit: Any,
    *,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[DisabledSafetyCheck] = (),
    _override_lowering_rules: Any = None,
) -> Callable[..., Exported]:
    """The function that takes the types of arguments and gives an `Exported`.

    A function with symbolic dims is traced at several sizes: inside of it sizes are numbers.

    Args:
        fun_jit: a result of `jit`, or a function of this library.
        platforms: where it may be called, such as ``["cpu"]``; None: here.
        disabled_checks: the checks to leave out.

    Returns:
        a function of arrays or `ShapeDtypeStruct`s, whose shapes may hold the dims that `symbolic_shape` gives.

    Raises:
        ValueError: `fun_jit` is not jitted; symbolic dims are of several scopes, or no argument determines them.
        NotImplementedError: a platform, or a check to leave out, is not known here.

    >>> import shardwise as jax
    >>> import shardwise.numpy as jnp
    >>> from shardwise.export import symbolic_shape
    >>> double = export(jax.jit(lambda x: 2 * x))(jax.ShapeDtypeStruct(symbolic_shape("b, 2"), jnp.float32))
    >>> double.out_avals
    (ShapedArray(float32[b,2]),)
    >>> deserialize(double.serialize()).call(jnp.ones((3, 2))).shape
    (3, 2)
    """
    if isinstance(fun_jit, FunctionType) and _is_ours(fun_jit):
        fun_jit = jit(fun_jit)  # JAX's own functions are jitted where they are defined
    if not isinstance(fun_jit, JitWrapped):
        raise ValueError(f"Function to be exported must be the result of `jit` but is: {fun_jit}")
    if _override_lowering_rules is not None:
        raise NotImplementedError(
            "export: _override_lowering_rules write MLIR, which programs here do not have. Leave it out."
        )
    if isinstance(platforms, str):
        raise ValueError(f"export: platforms={platforms!r} is a text; give a sequence of them.")
    chosen = (default_export_platform(),) if platforms is None else tuple(platforms)
    if not chosen:
        raise ValueError("export: platforms is empty. Name one, such as 'cpu', or leave it out.")

    def exporter(*args: Any, **kwargs: Any) -> Exported:
        dims = [
            (_argument(path), d)
            for path, leaf in tree_leaves_with_path((args, kwargs))
            for d in getattr(leaf, "shape", None) or ()
            if isinstance(d, SymbolicDim)
        ]
        for name, dim in dims:
            dims[0][1].scope.check_same(dim, f"when exporting {name_of(fun_jit)}, at {name},")

        def trace(sizes: Sizes) -> Any:
            sized_arguments = (
                tree_map(lambda leaf: _replace_sizes(leaf, sizes), (args, kwargs)) if sizes else (args, kwargs)
            )
            return fun_jit.trace(*sized_arguments[0], **sized_arguments[1])

        names = sorted(set[str]().union(*(d.variables() for _, d in dims)))
        return _export_traced(trace, names, dims[0][1].scope if dims else None, chosen, tuple(disabled_checks))

    return exporter


def deserialize(blob: bytes | bytearray) -> Exported:
    """The `Exported` that gave the bytes `blob`. Nothing in them is run, nor named outside of this library's own
    types.

    Raises:
        ValueError: they are damaged, others, or of another version; or a class in the trees is not registered in this process.

    >>> exported = jax.export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct((2,), jnp.float32))
    >>> jax.export.deserialize(exported.serialize()).call(jnp.zeros(2))
    Array([0., 0.], dtype=float32)
    """
    data = from_bytes(blob)
    if not isinstance(data, dict) or "program" not in data:
        raise ValueError("deserialize: the bytes hold no exported function.")
    return _load_exported(data)  # pyright: ignore[reportUnknownArgumentType]


def _load_exported(data: dict[str, Any]) -> Exported:
    vjp_data = data["vjp"]
    in_tree, out_tree = map(tree_from_data, data["trees"])
    return Exported(
        fun_name=data["name"],
        in_tree=in_tree,
        in_avals=data["types"][0],
        out_tree=out_tree,
        out_avals=data["types"][1],
        _in_named_shardings=data["shardings"][0],
        _out_named_shardings=data["shardings"][1],
        nr_devices=data["devices"],
        platforms=data["platforms"],
        disabled_safety_checks=tuple(map(DisabledSafetyCheck, data["checks"])),
        _body=LoadedBody(_portable(*data["program"]), data["types"][0], data["name"]),
        _get_vjp=None if vjp_data is None else lambda _: _load_exported(vjp_data),
    )


def _portable(main: Any, special: Any) -> Portable:
    return Portable(Part(*main), tuple((k, v if isinstance(v, str) else Part(*v)) for k, v in special))


def default_export_platform() -> str:
    """The platform that functions are exported for unless another is named.

    >>> jax.export.default_export_platform()
    'cpu'
    """
    return default_backend()


def _export_traced(
    trace: Callable[[Sizes], Any],
    names: Sequence[str],
    scope: SymbolicScope | None,
    platforms: tuple[str, ...],
    checks: tuple[DisabledSafetyCheck, ...],
) -> Exported:
    body = TracedBody(trace, names, scope)
    shape = body.shape()
    if body.samples is not None:
        env = body.samples.envs[0]  # raises where the arguments do not determine the dims
        sizes = [[evaluate_size(d, env) for d in t.shape] for t in shape.in_avals]
        solve_sizes([t.shape for t in shape.in_avals], sizes, [f"args[{i}]" for i in range(len(sizes))])
    return Exported(
        fun_name=shape.name,
        in_tree=shape.in_tree,
        in_avals=shape.in_avals,
        out_tree=shape.out_tree,
        out_avals=shape.out_avals,
        _in_named_shardings=shape.in_shardings,
        _out_named_shardings=shape.out_shardings,
        nr_devices=shape.devices,
        platforms=platforms,
        disabled_safety_checks=checks,
        _body=body,
        _get_vjp=lambda exported: _vjp_of(exported, names, scope),
    )


def _vjp_of(exported: Exported, names: Sequence[str], scope: SymbolicScope | None) -> Exported:
    count = len(exported.in_avals)
    tangents = [_type_of_cotangent(t) for t in exported.out_avals]
    ins, outs = exported._in_named_shardings, exported._out_named_shardings

    def trace(sizes: Sizes) -> Any:
        program, constants = exported._body.program(sizes)

        def fun_vjp_jax(*flat: Any) -> Any:
            _, pull = pullback_of(lambda *xs: tuple(eval_program(program, [*constants, *xs])), *flat[:count])
            return pull(tuple(flat[count:]))

        function_of_sizes = (
            jit(fun_vjp_jax, in_shardings=(*ins, *outs), out_shardings=ins) if any((*ins, *outs)) else jit(fun_vjp_jax)
        )
        types = [array_type([evaluate_size(d, sizes) for d in t.shape], t) for t in (*exported.in_avals, *tangents)]
        return function_of_sizes.trace(*[ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak_type) for t in types])

    return _export_traced(trace, names, scope, exported.platforms, exported.disabled_safety_checks)


def _type_of_cotangent(aval: ShapedArray) -> ShapedArray:
    like = ShapedArray((), aval.dtype).to_tangent_aval()
    return aval if like.dtype == aval.dtype else array_type(aval.shape, like.update(shape=(1,) * aval.ndim))


def _replace_sizes(leaf: Any, sizes: Sizes) -> Any:
    """A type with numbers in the place of symbolic dims."""
    shape = getattr(leaf, "shape", None)
    if not isinstance(shape, tuple) or not any(isinstance(d, SymbolicDim) for d in shape):
        return leaf
    numbers = tuple(evaluate_size(d, sizes) for d in shape)
    sharding = getattr(leaf, "sharding", None)
    return ShapeDtypeStruct(numbers, leaf.dtype, sharding=sharding, weak_type=getattr(leaf, "weak_type", False))


def _names(avals: Sequence[ShapedArray]) -> set[str]:
    return set[str]().union(*(d.variables() for t in avals for d in t.shape if isinstance(d, SymbolicDim)))


def _over(sharding: NamedSharding | None, mesh: Mesh | AbstractMesh) -> NamedSharding | None:
    if sharding is None:
        return None
    if mesh.abstract_mesh != sharding.mesh.abstract_mesh:
        raise ValueError(
            f"NamedSharding new mesh {mesh} does not match the mesh used for export {sharding.mesh}. Make one with the same axes."
        )
    return NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)


def _argument(path: Any) -> str:
    """How errors name an argument: ``args[0]['x']``."""
    return ("args" if getattr(path[0], "idx", 0) == 0 else "kwargs") + keystr(path[1:])


def _tree_differences(exported: Exported, tree: PyTreeDef) -> str:
    given, expected_tree = (tree_unflatten(t, [0] * t.num_leaves) for t in (tree, exported.in_tree))
    lines = [
        f"   - {_argument(path)} is a {a} in the invocation and a {b} when exported, so {why}.\n"
        for path, a, b, why in equality_errors(given, expected_tree)
    ]
    return (
        f"The invocation args and kwargs must have the same pytree structure as when the function '{exported.fun_name}' was exported, but "
        "they have the following structural differences:\n" + "\n".join(lines)
    )


__all__ = ["DisabledSafetyCheck", "Exported", "default_export_platform", "deserialize", "export"]
