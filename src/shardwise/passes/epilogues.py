"""Joining products with the fused groups that use their results while these are in the cache: equations `epilogue`.

Comes in: a per-device program with its fused groups. Goes out: the program in which a product, the group that reads its result
and possibly a product of the group's result are one equation. They are joined if the result is too large for the cache and
panels cost less than they save.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardwise.base import config
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Equation, Program, Var, map_equations, map_programs
from shardwise.ops.indexing.element_reads import is_read
from shardwise.passes.parts import Part, makers, order_parts, users
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.fused import fused
from shardwise.runtime.machine import llvm
from shardwise.runtime.products import epilogue_p, panels
from shardwise.sharding.rule import Kind


def with_epilogues(program: Program, env: Env) -> Program:
    """`program` with products joined with groups if that pays."""
    if config.shardwise_blas != "auto" or not llvm.available():
        return program
    return _join_groups(program, env)


def _join_groups(program: Program, env: Env) -> Program:
    program = map_equations(
        program, lambda e: e if e.op is fused else map_programs(e, lambda inner: _join_groups(inner, env))
    )
    search = _Search(program, env)
    for i, eqn in enumerate(program.equations):
        if eqn.op is fused:
            search.join(i)
    if not search.joined:
        return program
    single = [Part((i,)) for i in range(len(program.equations)) if i not in search.part_of]
    equations = []
    for part in order_parts(program, [*single, *search.joined]):
        members = [program.equations[i] for i in part.members]
        equations.append(members[0] if len(members) == 1 else search.together(part, members))
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


@dataclass(frozen=True)
class _Source:
    """A product whose result a group reads through `views`, as the value `seen`. `places`: the result's dim for each dim of `seen`."""

    number: int
    views: tuple[int, ...]
    seen: Var
    places: tuple[int | None, ...]


def _view_dims(eqn: Equation) -> tuple[int | None, ...] | None:
    """The operand's dim (None for size 1) for each dim of the result, if the equation is a view of its whole operand, dim by dim."""
    if not eqn.op.view or len(eqn.inputs) != 1 or not isinstance(eqn.inputs[0], Var):
        return None
    x, out = eqn.inputs[0].aval, eqn.outputs[0].aval
    rule = eqn.op.sharding_rule((x,), (out,), eqn.params)
    if x.size != out.size or x.vma != out.vma or any(kind is not Kind.PASS for kind in rule.kinds):
        return None
    of = {factors: d for d, factors in enumerate(rule.inputs[0]) if x.shape[d] != 1}
    places = tuple(None if n == 1 else of.get(factors) for n, factors in zip(out.shape, rule.outputs[0], strict=True))
    if any(
        n != 1 and (d is None or x.shape[d] != n or len(rule.inputs[0][d]) != 1)
        for n, d in zip(out.shape, places, strict=True)
    ):
        return None
    return places


class _Search:
    """Finds the parts to join; each in `joined` is a product, views of it, a group and possibly another product."""

    def __init__(self, program: Program, env: Env) -> None:
        self.equations = program.equations
        self.kept = {v for v in program.outputs if isinstance(v, Var)}
        self.env = env
        self.made = makers(program)
        self.used = users(program)
        self.joined: list[Part] = []
        self.part_of: dict[int, Part] = {}

    def join(self, i: int) -> None:
        """Join group i with a product before it, and possibly one after it, if that pays."""
        group = self.equations[i]
        before = [found for v in group.inputs if isinstance(v, Var) and (found := self._source(v, i)) is not None]
        for source in sorted(before, key=lambda s: -s.seen.aval.size):
            members = (source.number, *source.views, i)
            if not self._feeds(source.seen, group) or not self._acyclic(members):
                continue
            after = [k for k in self._followers(source, group) if self._acyclic((*members, k))][:1]
            if not self._pays(source, group, bool(after)):
                continue
            part = Part((*members, *after))
            self.joined.append(part)
            self.part_of.update(dict.fromkeys(part.members, part))
            return

    def _source(self, v: Var, reader: int) -> _Source | None:
        """The product of which `v` is a view, for equation `reader`."""
        base, views = v, []
        places: tuple[int | None, ...] = tuple(range(v.aval.ndim))
        while (j := self.made.get(v)) is not None:
            if self._contracts(j):
                return _Source(j, tuple(views), base, places)
            moved_dims = _view_dims(self.equations[j])
            if moved_dims is None or v in self.kept or self.used[v] != [reader] or j in self.part_of:
                return None
            places = tuple(None if d is None else moved_dims[d] for d in places)
            views.insert(0, j)
            v, reader = self.equations[j].inputs[0], j  # type: ignore[assignment]
            if v in self.kept or self.used[v] != [reader]:
                return None
        return None

    def _contracts(self, i: int) -> bool:
        """Whether equation i is a product that can be joined and is not yet."""
        eqn = self.equations[i]
        if i in self.part_of or eqn.op.contraction is None or not all(isinstance(a, Var) for a in eqn.inputs):
            return False
        if self.env.processes is not None and eqn.params.get("sum_axes"):
            return False  # the product exchanges data with other processes itself
        types = [a.aval for a in eqn.inputs], [v.aval for v in eqn.outputs]
        compute_type = eqn.op.contraction(*types, eqn.params)
        return all(t.dtype == compute_type for side in types for t in side)

    @staticmethod
    def _feeds(v: Var, group: Equation) -> bool:
        """Whether the value has the shape of the group's loops, and these read it along, not at positions."""
        program = group.params["program"]
        inside = program.inputs[group.inputs.index(v)]
        if any(is_read(e, inside) for e in program.equations):
            return False
        space, first = group.params.get("space"), group.outputs[0].aval
        return space.is_full(v.aval) if space is not None else (v.aval.shape, v.aval.vma) == (first.shape, first.vma)

    def _followers(self, source: _Source, group: Equation) -> list[int]:
        """Products whose left operand is a result of the group, with the rows and columns of the first product."""
        product, aval = self.equations[source.number], source.seen.aval
        inside = (*product.outputs, source.seen, *group.outputs)
        columns, followers = self._columns(product), []
        for v in group.outputs:
            if v.aval.shape != aval.shape or v.aval.dtype != aval.dtype:
                continue
            for k in self.used.get(v, ()):
                eqn = self.equations[k]
                if (
                    not self._contracts(k)
                    or eqn.inputs[0] is not v
                    or eqn.inputs[1] in inside
                    or eqn.params.get("sum_axes")
                ):
                    continue
                (left, _), (batch, _) = eqn.params["dimension_numbers"]
                last = tuple(range(aval.ndim - len(left), aval.ndim))
                contracted_places = {source.places[d] for d in left if aval.shape[d] != 1}
                if left == last and batch == tuple(range(len(batch))) and contracted_places == columns:
                    followers.append(k)
        return followers

    @staticmethod
    def _columns(product: Equation) -> set[int | None]:
        """The column dims of a product's result, except dims of size 1."""
        rhs, ((_, contracted_dims), (_, batch)) = product.inputs[1].aval, product.params["dimension_numbers"]
        out = product.outputs[0].aval
        return {
            d for d in range(out.ndim - rhs.ndim + len(contracted_dims) + len(batch), out.ndim) if out.shape[d] != 1
        }

    def _acyclic(self, members: Sequence[int]) -> bool:
        """Whether no path leaves the members and returns."""
        inside = set(members)
        last = max(inside)
        stack = [k for i in inside for v in self.equations[i].outputs for k in self.used.get(v, ()) if k not in inside]
        visited_places: set[int] = set()
        while stack:
            k = stack.pop()
            if k in inside:
                return False
            if k in visited_places or (k > last and k not in self.part_of and not self.joined):
                continue
            visited_places.add(k)
            together = self.part_of[k].members if k in self.part_of else (k,)
            visited_places.update(together)
            stack.extend(j for i in together for v in self.equations[i].outputs for j in self.used.get(v, ()))
        return True

    def _pays(self, source: _Source, group: Equation, followed: bool) -> bool:
        """Whether the result is large enough, and the panels too: each panel packs its operands again."""
        product = self.equations[source.number]
        out, space = product.outputs[0].aval, group.params.get("space")
        size = out.nbytes * math.prod(map(self.env.size, out.vma))
        if size < costs.PANELS_FROM:
            return False

        reduced_places = set() if space is None else {source.places[d] for d in space.axes if space.shape[d] != 1}
        columns = self._columns(product)
        rows = [d for d in range(out.ndim) if d not in columns]
        width = math.prod(out.shape[d] for d in columns if d is not None)
        outermost = next((i for i, d in enumerate(rows) if d in reduced_places), len(rows))
        if space is not None and space.crossed:
            outermost = 0
        whole = math.prod(out.shape[d] for d in rows[outermost:])
        cut = not followed and not columns & reduced_places
        height, width = panels.most(whole, size // (width * out.itemsize), width, out.itemsize, cut)
        if height * width * out.itemsize > costs.PANELS_HIGHEST * panels.BYTES:
            return False
        lhs, ((contracted_dims, _), _) = product.inputs[0].aval, product.params["dimension_numbers"]
        depth = math.prod(lhs.shape[d] for d in contracted_dims)
        return depth / height + depth / width <= (costs.PANELS_DEEPEST_FOLLOWED if followed else costs.PANELS_DEEPEST)

    def together(self, part: Part, members: Sequence[Equation]) -> Equation:
        """One equation for the members of a part."""

        inside = set(part.members)
        member_results = {v for e in members for v in e.outputs}
        inputs = tuple(
            dict.fromkeys(a for e in members for a in e.inputs if isinstance(a, Var) and a not in member_results)
        )
        outputs = tuple(
            v for e in members for v in e.outputs if v in self.kept or not inside.issuperset(self.used.get(v, ()))
        )
        return Equation(
            epilogue_p,
            inputs,
            outputs,
            {"program": Program(inputs, tuple(members), outputs, 0, "epilogue")},
            members[-1].source,
        )
