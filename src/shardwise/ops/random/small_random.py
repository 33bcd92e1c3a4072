"""Random keys and bits in small programs: the hash as instructions, its counters as constants.

Keys are uint64 whose lower half is the first word in memory, as in `ops.random.threefry`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from shardwise.ir import Equation
from shardwise.ir.op import Params
from shardwise.ops.random.counted_bits import hash_counter, own_part
from shardwise.runtime import costs
from shardwise.runtime.machine import Lane, Lanes
from shardwise.runtime.small import BodyWriter, Code, Value, dense, pointwise

Write = Callable[[Lanes, list[Lane]], Lane]


def _hash_keys(w: Lanes, keys: Lane, low: Lane) -> tuple[Lane, Lane]:
    return hash_counter(w, w.convert(keys, "uint32"), _high_word(w, keys), low)


def _high_word(w: Lanes, keys: Lane) -> Lane:
    return w.convert(w.binary("lshr", keys, w.like(32, keys)), "uint32")


def _join_words(w: Lanes, low: Lane, high: Lane) -> Lane:
    """Two words as one of 64 bits."""
    wide = w.convert(high, "uint64")
    return w.binary("or", w.convert(low, "uint64"), w.binary("shl", wide, w.like(32, wide)))


def _new_key(w: Lanes, given: list[Lane]) -> Lane:
    return _join_words(w, *_hash_keys(w, *given))


def _bits(width: int) -> Write:
    def write(w: Lanes, given: list[Lane]) -> Lane:
        x0, x1 = _hash_keys(w, *given)
        return _join_words(w, x1, x0) if width == 64 else w.convert(w.binary("xor", x0, x1), f"uint{width}")

    return write


def _append_counters(code: Code, keys: Value, params: Params, write: Write, dtype: str) -> Value:
    """A value for each key and each of the counters: the row-major numbers of the elements, of which devices may have parts."""
    rank, whole = len(keys.shape), tuple(params["shape"])
    counters = np.arange(math.prod(whole), dtype=np.uint32).reshape((1,) * rank + whole)
    counters = own_part(code.env, counters, params.get("shard_axes", ()))
    shape = counters.shape[rank:]
    wide = replace(
        keys, shape=keys.shape + (1,) * len(shape), steps=keys.steps + (0,) * len(shape) if keys.place else ()
    )
    if wide.constant is not None and wide.constant.size != 1:
        wide = replace(wide, constant=wide.constant.reshape(wide.shape))
    return pointwise(code, [wide, code.constant_value(counters, "uint32")], lambda lanes: write(code, lanes), dtype)


def split(body: BodyWriter, eqn: Equation, values: list[Value], wanted: list[Any]) -> list[Value]:
    """New keys from each key."""
    return [_append_counters(body.code, values[0], eqn.params, _new_key, "uint64")]


def block(body: BodyWriter, eqn: Equation, values: list[Value], wanted: list[Any]) -> list[Value]:
    """Random bits from each key."""
    width = eqn.params["bit_width"]
    return [_append_counters(body.code, values[0], eqn.params, _bits(width), f"uint{width}")]


def seed(body: BodyWriter, eqn: Equation, values: list[Value], wanted: list[Any]) -> list[Value]:
    """Keys from integers, as `threefry.seed` makes them."""
    code = body.code
    wide = eqn.inputs[0].aval.itemsize == 8

    def write(given: list[Lane]) -> Lane:
        (number,) = given
        first = (
            _high_word(code, code.convert(number, "uint64")) if wide else code.like(0, code.convert(number, "uint32"))
        )
        return _join_words(code, first, code.convert(number, "uint32"))

    return [pointwise(code, values, write, "uint64")]


def fold_in(body: BodyWriter, eqn: Equation, values: list[Value], wanted: list[Any]) -> list[Value]:
    """New keys from keys and numbers."""
    rank = body.code.lead + eqn.outputs[0].aval.ndim
    code = body.code
    return [pointwise(code, [code.align_rank(v, rank) for v in values], lambda lanes: _new_key(code, lanes), "uint64")]


def wrap(body: BodyWriter, eqn: Equation, values: list[Value], wanted: list[Any]) -> list[Value]:
    """Keys from their words."""
    code, words = body.code, values[0]
    shape = words.shape[:-1]
    if words.lane is not None and words.width == words.size:
        n = words.size // 2
        lane = code.let(f"bitcast <{2 * n} x i32> {words.lane.ref} to <{n} x i64>", "uint64")
        return [code.of_lane(lane, shape, "uint64", n)]
    words = dense(code, words)
    return [code.settle_value(Value(shape, "uint64", place=words.place, steps=words.steps[:-1], owners=words.owners))]


def unwrap(body: BodyWriter, eqn: Equation, values: list[Value], wanted: list[Any]) -> list[Value]:
    """The words of keys."""
    return [_words_of(body.code, values[0])]


def _words_of(code: Code, keys: Value) -> Value:
    shape = (*keys.shape, 2)
    if keys.lane is not None and keys.width == keys.size and 2 * keys.size <= costs.REGISTER_ELEMENTS:
        n = keys.size
        lane = code.let(f"bitcast <{n} x i64> {keys.lane.ref} to <{2 * n} x i32>", "uint32")
        return code.of_lane(lane, shape, "uint32", 2 * n)
    keys = code.in_memory(keys)
    return code.settle_value(Value(shape, "uint32", place=keys.place, steps=(*keys.steps, 4), owners=keys.owners))


def words(body: BodyWriter, eqn: Equation, values: list[Value], wanted: list[Any]) -> list[Value]:
    """The two words of keys, apart."""
    code = body.code
    low = pointwise(code, values, lambda given: code.convert(given[0], "uint32"), "uint32")
    high = pointwise(code, values, lambda given: _high_word(code, given[0]), "uint32")
    return [low, high]
