"""Folds: how reductions are written as vector code.

Sums and products of floats gather in float64, those of complex values part by part; sums of float64 keep what each addition has lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise.ir.op import Fold
from shardwise.runtime.machine import Lane, Lanes

Accumulators = tuple[Lane, ...]


# -- sums and products -----------------------------------------------------------------------------------------------


def _sum_start(w: Lanes, dtype: str) -> Accumulators:
    wide = w.constant(0.0, "float64")
    if dtype.startswith("complex"):
        return (wide,) * 4
    zero = w.constant(0, dtype)
    if not zero.floating:
        return (zero,)
    return (wide, wide) if dtype == "float64" else (wide,)


def _sum_step(w: Lanes, into: Accumulators, x: Lane, position: Lane | None) -> Accumulators:
    if len(into) == 4:
        real, imag = (w.convert(part, "float64") for part in w.parts_of(x))
        return *_add_exactly(w, into[:2], real), *_add_exactly(w, into[2:], imag)
    if len(into) == 2:
        return _add_exactly(w, into, x)
    return (w.add(into[0], w.convert(x, "float64") if x.floating else x),)


def _add_exactly(w: Lanes, into: Accumulators, x: Lane) -> Accumulators:
    """The sum, and the sum of what its additions have lost."""
    total, lost = into
    out = w.add(total, x)
    part = w.sub(out, total)
    return out, w.add(lost, w.add(w.sub(total, w.sub(out, part)), w.sub(x, part)))


def _sum_merge(w: Lanes, a: Accumulators, b: Accumulators) -> Accumulators:
    if len(a) == 4:  # of complex values: of the real parts and of the imaginary ones
        return *_sum_merge(w, a[:2], b[:2]), *_sum_merge(w, a[2:], b[2:])
    if len(a) == 1:
        return (w.add(a[0], b[0]),)
    total, lost = _add_exactly(w, a, b[0])
    return total, w.add(lost, b[1])


def _sum_finish(w: Lanes, held: Accumulators, dtype: str) -> Lane:
    if len(held) == 4:
        return w.complex_of(*[_sum_finish(w, part, _part(dtype)) for part in (held[:2], held[2:])])
    if len(held) == 1:
        return w.convert(held[0], dtype)
    total, lost = held
    return w.convert(w.select(w.isnan(lost), total, w.add(total, lost)), dtype)  # an infinite sum loses NaN


def _product_start(w: Lanes, dtype: str) -> Accumulators:
    wide = w.constant(1.0, "float64")
    if dtype.startswith("complex"):
        return wide, w.constant(0.0, "float64")
    one = w.constant(1, dtype)
    return (wide,) if one.floating else (one,)


def _product_step(w: Lanes, into: Accumulators, x: Lane, position: Lane | None) -> Accumulators:
    parts = w.parts_of(x) if len(into) == 2 else (x,)
    return _product_merge(w, into, tuple([w.convert(v, "float64") if v.floating else v for v in parts]))


def _product_merge(w: Lanes, a: Accumulators, b: Accumulators) -> Accumulators:
    if len(a) == 2:  # of complex values: both parts
        (p, q), (r, s) = a, b
        real, imag = w.sub(w.mul(p, r), w.mul(q, s)), w.add(w.mul(p, s), w.mul(q, r))
        for one, other in ((a, b), (b, a)):  # 1 times an infinite value is that value: accumulators begin with 1
            first, second = (w.compare("eq", v, w.like(k, v)) for v, k in zip(one, (1, 0), strict=True))
            alone = w.binary("and", first, second)
            real, imag = w.select(alone, other[0], real), w.select(alone, other[1], imag)
        return real, imag
    return (w.mul(a[0], b[0]),)


def _product_finish(w: Lanes, held: Accumulators, dtype: str) -> Lane:
    if len(held) == 2:
        return w.complex_of(*[w.convert(part, _part(dtype)) for part in held])
    return w.convert(held[0], dtype)


def _part(dtype: str) -> str:
    """The type of a complex type's parts."""
    return "float32" if dtype == "complex64" else "float64"


SUM = Fold(_sum_start, _sum_step, _sum_merge, _sum_finish, "iufc")
PROD = Fold(_product_start, _product_step, _product_merge, _product_finish, "iufc")


# -- bits ------------------------------------------------------------------------------------------------------------


def _bits(instruction: str, start: int) -> Fold:
    def step(w: Lanes, into: Accumulators, x: Lane, position: Lane | None) -> Accumulators:
        return (w.binary(instruction, into[0], x),)

    def merge(w: Lanes, a: Accumulators, b: Accumulators) -> Accumulators:
        return (w.binary(instruction, a[0], b[0]),)

    def begin(w: Lanes, dtype: str) -> Accumulators:
        return (w.constant(bool(start) if dtype == "bool" else start, dtype),)

    return Fold(begin, step, merge, lambda w, held, dtype: held[0], "biu")


AND, OR, XOR = _bits("and", -1), _bits("or", 0), _bits("xor", 0)


# -- extrema ---------------------------------------------------------------------------------------------------------


def _least(dtype: str, largest: bool) -> Any:
    """The value that every other one beats, or equals."""
    if dtype == "bool":
        return not largest
    if "float" in dtype:
        return float("-inf") if largest else float("inf")
    bits = int(dtype.rpartition("t")[2])
    low, high = (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return low if largest else high


def _extremum(largest: bool) -> Fold:
    """Accumulators: the extremum; of floats also whether there was a NaN and, unless the processor orders zeros, the signs of all,
    joined: both as integers then, since such a processor has no registers for bools. Short chains of dependent instructions, not a
    long one.
    """
    condition, signs = ("gt", "and") if largest else ("lt", "or")

    def better(w: Lanes, x: Lane, y: Lane) -> Lane:
        if w.orders_zeros(x):
            return w.beyond(largest, x, y)
        if x.type == "i1":
            return w.binary("or" if largest else "and", x, y)
        return w.select(w.compare(condition, x, y), x, y)

    def start(w: Lanes, dtype: str) -> Accumulators:
        best = w.constant(_least(dtype, largest), dtype)
        if not best.floating:
            return (best,)
        if w.orders_zeros(best):
            return best, w.constant(False, "bool")
        signs = w.bits_of(w.like(-0.0 if largest else 0.0, best))
        return best, w.like(0, signs), signs

    def step(w: Lanes, into: Accumulators, x: Lane, position: Lane | None) -> Accumulators:
        if len(into) == 1:
            return merge(w, into, (x,))
        flawed = w.isnan(x)
        return merge(w, into, (x, flawed) if len(into) == 2 else (x, w.fill_bits(flawed, into[1].dtype), w.bits_of(x)))

    def merge(w: Lanes, a: Accumulators, b: Accumulators) -> Accumulators:
        joined = [w.binary(how, p, q) for how, p, q in zip(("or", signs), a[1:], b[1:], strict=False)]
        if len(a) == 2 and not w.orders_zeros(a[0]):  # fewer lanes than the accumulators had at first
            return (w.maximum if largest else w.minimum)(b[0], a[0]), *joined
        return better(w, b[0], a[0]), *joined

    def across(w: Lanes, held: Accumulators, pairs: Callable[[Accumulators], Accumulators]) -> Accumulators:
        if len(held) != 2:
            return pairs(held)
        flawed = w.some(held[1])  # nothing joins bools of all lanes as cheaply
        return *pairs(held[:1]), w.splat(flawed, "bool")

    def finish(w: Lanes, held: Accumulators, dtype: str) -> Lane:
        best = held[0]
        if len(held) == 1:
            return best
        flawed = held[1]
        if len(held) == 3:  # if the extremum is zero, elements of the other sign are zeros, too
            zero = w.copysign(w.like(0, best), w.floats_of(held[2], best.dtype))
            best = w.select(w.compare("eq", best, zero), zero, best)
            flawed = w.compare("ne", flawed, w.like(0, flawed))
        return w.select(flawed, w.like(float("nan"), best), best)

    return Fold(start, step, merge, finish, across=across)


MAX, MIN = _extremum(True), _extremum(False)


# -- positions of extrema --------------------------------------------------------------------------------------------


def _position(largest: bool) -> Fold:
    """Accumulators: the best value, and where it was first; NaN beats all. A position of -1: nothing yet."""
    condition = "gt" if largest else "lt"

    def start(w: Lanes, dtype: str) -> Accumulators:
        return w.constant(_least(dtype, largest), dtype), w.constant(-1, "int32")

    def wins(w: Lanes, x: Lane, best: Lane) -> Lane:
        if x.type == "i1":
            x, best = w.convert(x, "int8"), w.convert(best, "int8")
        more = w.compare(condition, x, best)
        if not x.floating:
            return more
        undefined = w.binary("xor", w.isnan(best), w.constant(True, "bool"))
        return w.binary("or", more, w.binary("and", w.isnan(x), undefined))

    def step(w: Lanes, into: Accumulators, x: Lane, position: Lane | None) -> Accumulators:
        assert position is not None
        best, where = into
        new = w.binary("or", wins(w, x, best), w.compare("lt", where, w.like(0, where)))
        return w.select(new, x, best), w.select(new, position, where)

    def merge(w: Lanes, a: Accumulators, b: Accumulators) -> Accumulators:
        first, second = wins(w, a[0], b[0]), wins(w, b[0], a[0])
        # Of equal ones the smaller position; -1 is larger than all.
        unsigned = [Lane(v[1].ref, "uint32") for v in (a, b)]
        sooner = w.compare("lt", unsigned[1], unsigned[0])
        tie = w.binary("xor", w.binary("or", first, second), w.constant(True, "bool"))
        take = w.binary("or", second, w.binary("and", tie, sooner))
        return w.select(take, b[0], a[0]), w.select(take, b[1], a[1])

    def finish(w: Lanes, held: Accumulators, dtype: str) -> Lane:
        return w.convert(held[1], dtype)

    return Fold(start, step, merge, finish, positions=True)


ARGMAX, ARGMIN = _position(True), _position(False)
