"""Products joined with the fused groups that use their results while these are in the cache: equations `epilogue`.

Comes in: a per-device program with its fused groups. Goes out: the program in which a product and the group that reads its result,
and it may be one product of what the group gives, are one equation, where the result is too large to stay in the cache and
computing it in panels costs less than is won.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardwise.base import config
from shardwise.ir import Equation, Program, Var
from shardwise.passes.parts import Part, makers, ordered, users
from shardwise.runtime import llvm
from shardwise.runtime.env import Env
from shardwise.runtime.epilogue import epilogue
from shardwise.runtime.epilogue_panels import BYTES, most
from shardwise.runtime.fused import fused

LEAST = 1 << 20  # bytes of a product's result from which panels pay
# What is laid out anew for a panel, in elements per element of the panel: where more, a product is slower in panels than it wins.
_DEEPEST = 0.6
_DEEPEST_FOLLOWED = 1.5  # the product that follows wins, too


def with_epilogues(program: Program, env: Env) -> Program:
    """`program` with its products joined with groups where that pays."""
    if config.shardwise_blas != "auto" or not llvm.available():
        return program
    search = _Search(program, env)
    for i, eqn in enumerate(program.equations):
        if eqn.op is fused:
            search.join(i)
    if not search.joined:
        return program
    single = [Part((i,)) for i in range(len(program.equations)) if i not in search.part_of]
    equations = []
    for part in ordered(program, [*single, *search.joined]):
        members = [program.equations[i] for i in part.members]
        equations.append(members[0] if len(members) == 1 else search.together(part, members))
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


class _Search:
    """Finds what can be joined; `joined` are the parts found, each a product, a group and maybe a product."""

    def __init__(self, program: Program, env: Env) -> None:
        self.equations = program.equations
        self.kept = {v for v in program.outputs if isinstance(v, Var)}
        self.env = env
        self.made = makers(program)
        self.used = users(program)
        self.joined: list[Part] = []
        self.part_of: dict[int, Part] = {}

    def join(self, i: int) -> None:
        """Join group i with a product before and one after it, if that pays."""
        group = self.equations[i]
        before = [
            j
            for v in group.inputs
            if isinstance(v, Var) and (j := self.made.get(v)) is not None and self._feeds(j, group)
        ]
        for j in sorted(before, key=lambda j: -self.equations[j].outputs[0].aval.size):
            if not self._acyclic((j, i)):
                continue
            after = [k for k in self._followers(j, group) if self._acyclic((j, i, k))]
            if not self._pays(j, group, bool(after)):
                continue
            part = Part((j, i, *after[:1]))
            self.joined.append(part)
            self.part_of.update(dict.fromkeys(part.members, part))
            return

    def _contracts(self, i: int) -> bool:
        """Whether equation i is a product that can be part of a step, and is not yet part of one."""
        eqn = self.equations[i]
        if i in self.part_of or eqn.op.contraction is None or not all(isinstance(a, Var) for a in eqn.inputs):
            return False
        if self.env.processes is not None and eqn.params.get("sum_axes"):
            return False  # another exchange of data
        types = [a.aval for a in eqn.inputs], [v.aval for v in eqn.outputs]
        computed = eqn.op.contraction(*types, eqn.params)
        return all(t.dtype == computed for side in types for t in side)

    def _feeds(self, j: int, group: Equation) -> bool:
        """Whether equation j is a product whose result has the shape of the group's loops."""
        out = self.equations[j].outputs[0].aval
        space = group.params.get("space")
        if not self._contracts(j):
            return False
        first = group.outputs[0].aval
        return space.is_full(out) if space is not None else (out.shape, out.vma) == (first.shape, first.vma)

    def _followers(self, j: int, group: Equation) -> list[int]:
        """Products whose left operand is a result of the group, with the rows and columns of product j."""
        product = self.equations[j]
        columns, found = self._columns(product), []
        inside = (*product.outputs, *group.outputs)
        for v in group.outputs:
            if v.aval.shape != product.outputs[0].aval.shape or v.aval.dtype != product.outputs[0].aval.dtype:
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
                last = tuple(range(v.aval.ndim - len(left), v.aval.ndim))
                if (
                    left == last
                    and batch == tuple(range(len(batch)))
                    and math.prod(v.aval.shape[d] for d in left) == columns
                ):
                    found.append(k)
        return found

    @staticmethod
    def _columns(product: Equation) -> int:
        """The columns of a product on one device."""
        rhs, ((_, contracted), (_, batch)) = product.inputs[1].aval, product.params["dimension_numbers"]
        return math.prod(n for d, n in enumerate(rhs.shape) if d not in contracted and d not in batch)

    def _acyclic(self, members: Sequence[int]) -> bool:
        """Whether no way leads out of the members and back in."""
        inside = set(members)
        last = max(inside)
        stack = [k for i in inside for v in self.equations[i].outputs for k in self.used.get(v, ()) if k not in inside]
        seen: set[int] = set()
        while stack:
            k = stack.pop()
            if k in inside:
                return False
            if k in seen or (k > last and k not in self.part_of and not self.joined):
                continue
            seen.add(k)
            together = self.part_of[k].members if k in self.part_of else (k,)
            seen.update(together)
            stack.extend(j for i in together for v in self.equations[i].outputs for j in self.used.get(v, ()))
        return True

    def _pays(self, j: int, group: Equation, followed: bool) -> bool:
        """Whether the result is large enough, and the panels too: their operands are laid out anew for each."""
        product = self.equations[j]
        out, space = product.outputs[0].aval, group.params.get("space")
        size = out.nbytes * math.prod(map(self.env.size, out.vma))
        if size < LEAST:
            return False
        columns = self._columns(product)
        reduced = set(space.axes) if space is not None else set()
        first, width = out.ndim, 1
        while width < columns:  # the trailing dims are the columns
            first -= 1
            width *= out.shape[first]
        in_columns = any(d >= first for d in reduced)
        outermost = min([d for d in reduced if d < first], default=first)
        whole = math.prod(out.shape[outermost:first])
        if space is not None and space.crossed:
            whole = max(out.size // columns, 1)
        rows = size // (columns * out.itemsize)
        height, width = most(whole, rows, columns, out.itemsize, not followed and not in_columns)
        if height * width * out.itemsize > 4 * BYTES:
            return False
        lhs, ((contracted, _), _) = product.inputs[0].aval, product.params["dimension_numbers"]
        depth = math.prod(lhs.shape[d] for d in contracted)
        return depth / height + depth / width <= (_DEEPEST_FOLLOWED if followed else _DEEPEST)

    def together(self, part: Part, members: Sequence[Equation]) -> Equation:
        """One equation for the members of a part."""
        inside = set(part.members)
        made = [v for e in members for v in e.outputs]
        inputs = tuple(dict.fromkeys(a for e in members for a in e.inputs if isinstance(a, Var) and a not in made))
        outputs = tuple(v for v in made if v in self.kept or not inside.issuperset(self.used.get(v, ())))
        return Equation(epilogue, inputs, outputs, {"program": Program(inputs, tuple(members), outputs, 0, "epilogue")},
                        members[1].source)  # fmt: skip
