"""Functions with rules of their own under `vmap`: their programs, and the rules of `custom_vjp`, run on mapped values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.tree import PyTreeDef
from shardwise.ir import Program, ShapedArray, trace_program, tracing
from shardwise.ops.rules.derivative import do, full_in_front
from shardwise.transforms.interpreters.batch_trace import (
    Alike,
    BatchTrace,
    BatchTracer,
    batch_program,
    lift_result,
    mapping_again,
)


def mapped_results(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], program: Program
) -> tuple[Program, Sequence[Any], list[int | Alike]]:
    """The program of a function on mapped values, what it captures, and the dims of its results, all mapped: in front.

    A result that is the same for all elements is repeated, since the function's rule may give it tangents that are not.
    """
    result_axes: list[int | Alike] = []

    def map_values(*xs: Any) -> list[Any]:
        outs, out_dims = batch_program(program, size, axis_name, xs, dims)
        result_axes[:] = [Alike() if d is None else 0 for d in out_dims]
        return [full_in_front(size, o, d) for o, d in zip(outs, out_dims, strict=True)]

    mapped_program, consts = trace_program(map_values, [v.aval for v in values], program.name)
    return mapped_program, consts, result_axes


class MappedRules:
    """The rules of a mapped function: `dims` are the mapped dims of its flat inputs, results have theirs first."""

    def __init__(
        self,
        rules: Any,
        size: int,
        axis_name: Any,
        dims: tuple[int | None, ...],
        residual_dims: tuple[int | None, ...] | None = None,
        inner_types: tuple[ShapedArray, ...] | None = None,
    ) -> None:
        self.rules = rules
        self.again = mapping_again()
        self.size = size
        self.axis_name = axis_name
        self.dims = dims
        self.residual_dims = residual_dims  # None: all first
        self.types = (
            ()
            if inner_types is None
            else tuple(
                t
                if d is None
                else t.update(shape=(*t.shape[:d], size, *t.shape[d:]), spec=(*t.spec[:d], (), *t.spec[d:]))
                for t, d in zip(inner_types, dims, strict=True)
            )
        )

    @property
    def symbolic_zeros(self) -> bool:
        return self.rules.symbolic_zeros

    def _enter(self, trace: BatchTrace, x: Any, dim: int | None) -> Any:
        return x if dim is None or x is None else BatchTracer(trace, x, dim)

    def forward(
        self, primals: Sequence[Any], perturbed: Sequence[bool], note: list[Any]
    ) -> tuple[list[Any], list[Any], PyTreeDef]:
        with self.again:
            trace = BatchTrace(self.size, self.axis_name, of_rule=True)
        with tracing(trace):
            outs, residuals, tree = self.rules.forward(
                [self._enter(trace, p, d) for p, d in zip(primals, self.dims, strict=True)], perturbed, note
            )
        return [lift_result(trace, o) for o in outs], [lift_result(trace, r) for r in residuals], tree

    def backward(
        self,
        residuals: Sequence[Any],
        residual_tree: PyTreeDef,
        cts: Sequence[Any],
        out_tree: PyTreeDef,
        types: Sequence[ShapedArray],
        ct_types: Sequence[ShapedArray],
    ) -> list[Any]:
        trace = BatchTrace(self.size, self.axis_name)
        at = self.residual_dims or (0,) * len(residuals)

        def drop(t: ShapedArray, d: int | None) -> ShapedArray:
            if d is None:
                return t
            return t.update(shape=(*t.shape[:d], *t.shape[d + 1 :]), spec=(*t.spec[:d], *t.spec[d + 1 :]))

        inner = [drop(t, d) for t, d in zip(types, self.dims, strict=True)]
        with tracing(trace):
            cotangents = self.rules.backward(
                [self._enter(trace, r, d) for r, d in zip(residuals, at, strict=True)],
                residual_tree,
                [self._enter(trace, c, 0) for c in cts],
                out_tree,
                inner,
                [drop(t, 0) for t in ct_types],
            )
        return [
            None if ct is None else _fit_cotangent(trace, ct, d) for ct, d in zip(cotangents, self.dims, strict=True)
        ]


def _fit_cotangent(trace: BatchTrace, ct: Any, dim: int | None) -> Any:
    """A cotangent from a mapped rule, fitted to its argument: mapped dim moved into place, or summed over if the argument has none."""
    full = lift_result(trace, ct)
    if dim is None:
        return do.reduce_sum(full, axes=(0,))
    order = list(range(1, full.ndim))
    order.insert(dim, 0)
    return full if dim == 0 else do.transpose(full, permutation=tuple(order))
