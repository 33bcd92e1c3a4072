"""Random programs and edits of them: what one process runs, and what another runs in its place."""

from __future__ import annotations

import random
from dataclasses import dataclass

SETUP = """
import functools
import numpy as np
import shardwise as jax
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.experimental.shard_map import shard_map
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
def at(*spec): return NamedSharding(mesh, P(*spec))
def mapped(f, spec, out=P()): return jax.jit(shard_map(f, mesh=mesh, in_specs=spec, out_specs=out, check_rep=False))
base = np.arange(32, dtype=np.float32).reshape(8, 4) / 16
a = jax.device_put(base, at("x", "y"))
b = jax.device_put(np.sin(base), at("x", None))
v = jax.device_put(base[:, 1].copy(), at("x"))
w = jax.device_put(base[0] + 1, at())
m = jax.make_array_from_callback((8, 4), at("x"), lambda i: base[i] + 2)
o = jax.make_array_from_callback((8, 4), at("x"), lambda i: base[i] + 3)
"""

# A statement makes `t`; in braces stand the places of an edit, with what may stand there.
STATEMENTS = {
    "unary": "t = jnp.{sin|exp|tanh|cos|sqrt}({a|b|m|o|v})",
    "literal": "t = {a|b|m|v|w} {*|+|-} {0.5|0.25|2.0|3.0}",
    "replicated": "t = a * ((w {*|+|-} {0.5|0.25})[{0|1|2|3}])",
    "two": "t = {a|b|m|o} {+|*|-} {a|b|m|o}",
    "order of two": "t = {a - b|b - a|m - o|o - m|a - o}",
    "reduction": "t = jnp.{sum|max|min|mean|prod|var}({a|b|m}, axis={0|1|None})",
    "index": "t = {a|b|m}[{0|3|5|7}]",
    "slice": "t = {a|b}[{0|1|2}:{5|6|8}]",
    "type": "t = (a * 8).astype(jnp.{int32|float16|float32|int8|uint8})",
    "running": "t = jnp.{cumsum|cumprod|sort|flip}({a|b}, axis={0|1})",
    "product": "t = {a.T @ b|b.T @ a|a.T @ a|b.T @ b}",
    "layout": "t = jax.device_put({a|b|m}, at({'y', 'x'|None, 'y'|None, 'x'|'x', 'y'|})) * 2",
    "constant": "c = np.{cos|sin|exp}(base)\nt = jax.jit(lambda x: x * c)(a)",
    "closure": "k = {2.0|3.0|4.0}\nt = jax.jit(lambda x: jnp.where(x > k / 4, x, -x))(a)",
    "array argument": "t = jax.jit(lambda x, c: x + c)(a, base[{0|1|2|3}])",
    "scalar argument": "t = jax.jit(lambda x, r: x * r)(a, {0.5|0.1|1.5})",
    "static": "t = jax.jit(lambda x, n: x ** n, static_argnums=1)(a, {2|3|4})",
    "scan": "t = lax.scan(lambda c, x: (c {+|*} x, c), {0.0|1.0|0.5}, w, reverse={False|True})[{0|1}] * a",
    "loop": "t = jax.jit(lambda x: lax.fori_loop(0, {2|3|4|5}, lambda i, c: c + x.{sum|max|min}(), 0.0))(a)",
    "while": "t = jax.jit(lambda x: lax.while_loop(lambda c: c[0] < {2|3|4}, lambda c: (c[0] + 1, c[1] + x.sum()), (0, 0.0))[1])(b)",
    "cond": "t = jax.jit(lambda x, p: lax.cond(p > {0.5|2.0}, lambda x: x.{sum|max}(), lambda x: x.{min|mean}(), x))(a, w0)",
    "collective": "t = mapped(lambda x: lax.{psum|pmax|pmin|pmean}(x, {'x'|'y'|('x', 'y')}), P('x', 'y'))(a)",
    "gather": "t = mapped(lambda x: lax.all_gather(x, 'x', axis={0|1}, tiled={True|False}).sum(), P('x', 'y'))(a)",
    "shift": "perm = [(i, (i + {1|2|3}) % 4) for i in range(4)]\n"
             "t = mapped(lambda x: lax.ppermute(x, 'x', perm), P('x'), P('x'))({b|m|o})",
    "own place": "t = mapped(lambda x: lax.psum(x * (lax.axis_index('x') {+|*} {1|2|3}), 'x'), P('x'))(b)",
    "derivative": "t = jax.grad(lambda x: (jnp.{sin|cos|tanh}(x) * {2.0|3.0}).sum())({a|b|m})",
    "drawing": "t = a * jax.random.{normal|uniform}(jax.random.PRNGKey({0|1|2}), (8, 4))",
    "rows": "t = {a|b|m}[jnp.array([{0, 1|1, 0|2, 5|7, 7}])]",
    "write": "t = {a|b}.at[{0|3|7}].{set|add|multiply}({1.0|2.0})",
    "einsum": "t = jnp.einsum('{ij,ij->i|ij,ij->j|ij,ij->ij}', a, b)",
    "reshape": "t = a.{reshape(4, 8)|reshape(32)|reshape(2, 16)|T} * jnp.float32({1.5|2.5})",
    "fresh": "f = jax.make_array_from_callback((4,), at(), lambda i: base[{0|1|2}])\nt = f * a",
}  # fmt: skip

NAMES = list(STATEMENTS)


@dataclass(frozen=True)
class Pair:
    """What one process runs, what another one does, and the edit that lies between them."""

    first: str
    second: str
    edit: str


def _choices(text: str) -> list[tuple[int, int, list[str]]]:
    found, start = [], None
    for i, letter in enumerate(text):
        if letter == "{":
            start = i
        elif letter == "}" and start is not None:
            found.append((start, i + 1, text[start + 1 : i].split("|")))
            start = None
    return found


def _written(name: str, picked: list[int]) -> str:
    text = STATEMENTS[name]
    for (start, stop, options), at in reversed(list(zip(_choices(text), picked, strict=True))):
        text = text[:start] + options[at] + text[stop:]
    return text


def _program(lines: list[str]) -> str:
    body = ["s = w[0] * 0", "w0 = w[0]"]
    for i, line in enumerate(lines):
        body += [line, f"s = s + t.astype(jnp.float32).sum() * {i + 1}"]
        if i % 2:
            body.append("emit(s)")
    return "\n".join([*body, "emit((a * s).sum())"]) + "\n"


def pair(seed: int) -> Pair:
    """The pair with that number, always the same."""
    draw = random.Random(seed)
    statements = []
    names = [NAMES[seed % len(NAMES)], *draw.choices(NAMES, k=draw.randint(0, 2))]
    for name in names:
        statements.append((name, [draw.randrange(len(options)) for *_, options in _choices(STATEMENTS[name])]))
    first = [_written(*s) for s in statements]
    second = list(first)
    kind = draw.random()
    if kind < 0.06:
        second.append("t = a * 1.25")
        edit = "a call more"
    elif kind < 0.12 and len(first) > 1:
        second.pop()
        edit = "a call less"
    elif kind < 0.18 and len(first) > 1 and first[0] != first[-1]:
        second[0], second[-1] = second[-1], second[0]
        edit = "another order"
    else:
        name, picked = statements[0]
        place = draw.randrange(len(picked))
        options = _choices(STATEMENTS[name])[place][2]
        other = list(picked)
        other[place] = draw.choice([k for k in range(len(options)) if k != picked[place]])
        second[0] = _written(name, other)
        edit = f"{name}: {options[picked[place]]} -> {options[other[place]]}"
    return Pair(_program(first), _program(second), edit)
