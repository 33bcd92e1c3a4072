"""Ops on stacks of matrices: the common part of their definitions.

Comes in: the sizes that one matrix results in, and a kernel for stacks. Goes out: an `Op`. The last dims hold the matrices and must be
whole on a device; the dims before them pass through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ints, Ndarray
from shardwise.ir import Atom, Equation, Op, ShapedArray, Shown, SmallForm, Spread, define_op
from shardwise.ir.explicit import type_error
from shardwise.ir.op import Params, Steps, Types
from shardwise.ir.types import Spec
from shardwise.ops.rules.derivative import later
from shardwise.ops.rules.operands import dtype_kind
from shardwise.ops.rules.small_programs import as_program
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Kind, Rule

Result = tuple[Ints, str]  # dims of one matrix, and its element type: 'same', 'real', 'complex', 'int32', 'bool'


def define_matrix_op(
    name: str,
    ranks: Ints,
    results: Callable[..., list[Result]],
    kernel: Callable[..., Any],
    *,
    accepts: str = "fc",
    multiple: bool = True,
    broadcasts: bool = False,
    rules: Sequence[str] = (),
    derivatives: str = "linalg_derivative",
    makes_nan: bool = False,
    small: SmallForm | None = None,
    partition: Callable[[Any, Equation], None] | None = None,
    algorithm: Callable[[Types, Types, Params], Steps] | None = None,
    workspace: Callable[[Types, Types, Params], int] | None = None,
    shown: Shown | None = None,
) -> Op:
    """An op on matrices of these ranks. `results(*core_shapes, **params)` gives the results of one matrix (one of each) and
    raises ValueError or TypeError for sizes; `kernel(*blocks, **params)` works on stacks. Batch dims are equal, or 1 where it
    `broadcasts`. Its derivative `rules` ('jvp', 'transpose') are in the module `derivatives` of this package,
    and `shown` says how JAX's programs print it."""
    matrices = _Matrices(name, ranks, results, kernel, accepts, multiple, broadcasts)
    derivative = {r: later(f"shardwise.ops.linalg.{derivatives}", f"{name}_{r}") for r in rules}
    return define_op(
        name,
        type_rule=matrices.types,
        kernel=matrices.run,
        rule=matrices.rule,
        explicit=matrices.explicit,
        multiple_results=multiple,
        makes_nan=makes_nan,
        small=small,
        partition=partition,
        algorithm=algorithm,
        workspace=workspace,
        shown=shown or Shown(),
        **derivative,
    )


@dataclass(frozen=True, slots=True)
class _Matrices:
    """The rules that ops on matrices share; `define_matrix_op` explains the fields."""

    name: str
    ranks: Ints
    results: Callable[..., list[Result]]
    kernel: Callable[..., Any]
    accepts: str
    multiple: bool
    broadcasts: bool

    def types(self, *types: ShapedArray, **params: Any) -> Any:
        """The types of the results. TypeError for operands that do not fit."""
        for i, (t, r) in enumerate(zip(types, self.ranks, strict=True)):
            if t.ndim < r:
                raise TypeError(f"Input {i} to {self.name} must have rank at least {r}, but got shape={t.shape}")
            if dtype_kind(t.dtype) not in self.accepts or t.dtype.name.startswith("float8"):
                raise TypeError(
                    f"{self.name} does not accept dtype {t.dtype.name}; cast to float32 or another floating type first."
                )
            if t.dtype != types[0].dtype:
                raise TypeError(
                    f"{self.name} requires arguments of one dtype, got {', '.join(u.dtype.name for u in types)}."
                )
        batch = self._batch(types)
        cores = self.results(*(t.shape[t.ndim - r :] for t, r in zip(types, self.ranks, strict=True)), **params)
        weak = all(t.weak_type for t in types)
        outs = [ShapedArray(batch + core, _element(types[0].dtype, kind), weak) for core, kind in cores]
        return tuple(outs) if self.multiple else outs[0]

    def _batch(self, types: Types) -> Ints:
        """The batch dims of the results."""
        batches = [t.shape[: t.ndim - r] for t, r in zip(types, self.ranks, strict=True)]
        batch = batches[0]
        if self.broadcasts and len(set(map(len, batches))) == 1:
            batch = tuple(max(sizes, key=lambda n: n != 1) for sizes in zip(*batches, strict=True))
            batches = [tuple(m if n == 1 else n for n, m in zip(b, batch, strict=True)) for b in batches]
        if len(set(batches)) > 1:
            raise TypeError(
                f"All inputs to {self.name} must have the same batch dims, got shapes {', '.join(str(t.shape) for t in types)}."
            )
        return batch

    def run(self, env: Env, *blocks: Ndarray, **params: Any) -> Any:
        """The kernel, which computes small floats as float32."""
        dtype = blocks[0].dtype
        narrow = dtype.itemsize < 4 and dtype_kind(dtype) == "f"
        outs = self.kernel(*(b.astype(np.float32) for b in blocks) if narrow else blocks, **params)
        outs = outs if isinstance(outs, tuple) else (outs,)
        if narrow:
            outs = tuple(o.astype(dtype) if o.dtype == np.float32 else o for o in outs)
        return outs if self.multiple else outs[0]

    def rule(self, in_types: Types, out_types: Types, params: Params) -> Rule:
        """The batch dims split alike; matrices are whole."""
        return _matrix_rule(in_types, out_types, in_types[0].ndim - self.ranks[0])

    def explicit(self, in_types: Types, out_types: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
        """The specs of the results on Explicit axes: those of the batch dims."""
        for i, (t, r) in enumerate(zip(in_types, self.ranks, strict=True)):
            if any(t.spec[t.ndim - r :]):
                raise type_error(
                    f"Input {i} to {self.name} must be unsharded on non-batch dimensions, but got {t.sharding.spec}. "
                    "Reshard these dims to None first."
                )
        batch = in_types[0].spec[: in_types[0].ndim - self.ranks[0]]
        for t in in_types[1:]:
            if self.broadcasts:
                batch = tuple(a or b for a, b in zip(batch, t.spec, strict=False))
        for t in in_types:
            if any(a != b and (n != 1 or not self.broadcasts) for a, b, n in zip(t.spec, batch, t.shape, strict=False)):
                raise type_error(
                    f"All inputs to {self.name} must have the same batch sharding, but got "
                    f"{', '.join(str(u.sharding.spec) for u in in_types)}."
                )
        return tuple(batch + ((),) * (out.ndim - len(batch)) for out in out_types)


def by_library(name: str, **fields: Any) -> SmallForm:
    """The form of an op in small programs, as a function of NumPy's or SciPy's (see `small_matrices`)."""
    module = "shardwise.ops.linalg.small_matrices"
    return SmallForm(later(module, name), later(module, "matrices_fit"), mapped=True, **fields)


def as_steps(name: str, fits: str, **fields: Any) -> SmallForm:
    """The form of an op in small programs, as other ops (see `small_decompositions`)."""
    module = "shardwise.ops.linalg.small_decompositions"
    return as_program(later(module, name), later(module, fits), **fields)


def count_matrices(atom: Atom, spread: Spread) -> int:
    """The matrices of a stack on all devices."""
    return spread.elements(atom.aval) // max(prod(atom.aval.shape[-2:]), 1)


def calls_per_stack(calls: int) -> Callable[[Equation, Spread], int]:
    """`SmallForm.calls` of a kernel that has another algorithm for large stacks, which are left to it."""
    return lambda eqn, spread: calls if count_matrices(eqn.inputs[0], spread) < costs.STACKED_FEWEST else 1


def _matrix_rule(in_types: Types, out_types: Types, batch: int) -> Rule:
    """Batch dims pass through; every dim of a matrix is needed whole, and made whole."""
    sizes = list(out_types[0].shape[:batch])
    tensors = []
    for t in in_types + out_types:
        factors: list[tuple[int, ...]] = [(d,) if n != 1 else () for d, n in enumerate(t.shape[:batch])]
        for n in t.shape[batch:]:
            factors.append((len(sizes),) if n != 1 else ())
            if n != 1:
                sizes.append(n)
        tensors.append(tuple(factors))
    kinds = (Kind.PASS,) * batch + (Kind.REPLICATE,) * (len(sizes) - batch)
    return Rule(tuple(tensors[: len(in_types)]), tuple(tensors[len(in_types) :]), tuple(sizes), kinds)


def _element(dtype: np.dtype[Any], kind: str) -> np.dtype[Any]:
    if kind in ("int32", "bool"):
        return np.dtype(kind)
    if kind == "real" and dtype.kind == "c":
        return np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)
    if kind == "complex" and dtype.kind != "c":
        return np.dtype(np.complex128 if dtype.itemsize == 8 else np.complex64)
    return dtype


def square_size(name: str, shape: Ints) -> int:
    """The rows of a square matrix. ValueError for others."""
    if shape[0] != shape[1]:
        raise ValueError(f"The input to {name} must be a square matrix. Got shape {shape}.")
    return shape[0]
