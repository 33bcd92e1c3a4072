"""Random programs: one op of a family, on operands of random shapes, laid out at random over random meshes.

A family is a hypothesis strategy for a `Case`: an expression over operands `a`, `b`, ... and their shapes and dtypes.
`placed` gives a case a mesh and specs, and `source` writes it down as a program that JAX runs as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

SIZES = (1, 2, 3, 4, 6, 8, 12)
MESHES = ((2,), (4,), (8,), (3,), (2, 4), (4, 2), (2, 2), (3, 2), (1, 4), (2, 2, 2))
AXES = ("x", "y", "z")
FLOATS = ("float32", "bfloat16", "float16")
INTS = ("int32", "int8", "uint8", "uint32")
DTYPES = (*FLOATS, *INTS, "bool")

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """An expression over its operands, which are called a, b, c in order; `ulps` is how far floats may be apart."""

    expression: str
    operands: tuple[tuple[Shape, str], ...]
    ulps: float = 4


@dataclass(frozen=True)
class Placed:
    """A case on a mesh, with a spec (as text) for each operand."""

    case: Case
    mesh: Shape
    specs: tuple[str, ...]

    def source(self, axis_type: str | None = "Auto", calls: str = "[f(*args), jax.jit(f)(*args)]") -> str:
        """The program's text.

        Args:
            axis_type: of the mesh; None leaves the operands where they are, without a mesh.
            calls: says what becomes of the function `f` and its `args`.
        """
        names = AXES[: len(self.mesh)]
        lines = [f"mesh = mesh_of({self.mesh}, {names}, {axis_type!r})"] if axis_type else []
        for i, ((shape, dtype), spec) in enumerate(zip(self.case.operands, self.specs, strict=True)):
            operand = f"data({shape}, {dtype!r}, {i})"
            put = f"jax.device_put({operand}, NamedSharding(mesh, {spec}))" if axis_type else f"jnp.asarray({operand})"
            lines.append(f"{'abc'[i]} = {put}")
        parameters = ", ".join("abc"[: len(self.specs)])
        lines += [f"f = lambda {parameters}: {self.case.expression}", f"args = ({parameters},)"]
        # Explicit programs say which mesh they are on; arrays that they make then have types on it too.
        lines += (
            ["with jax.set_mesh(mesh):", f"    result = {calls}"] if axis_type == "Explicit" else [f"result = {calls}"]
        )
        return "\n".join(lines)


@st.composite
def placed(draw: st.DrawFn, cases: st.SearchStrategy[Case], meshes: Sequence[Shape] = MESHES) -> Placed:
    """A case of `cases`, on one of `meshes`, each operand with a random spec that divides it."""
    case = draw(cases)
    mesh = draw(st.sampled_from(meshes))
    return Placed(case, mesh, tuple(draw(specs(shape, mesh)) for shape, _ in case.operands))


@st.composite
def specs(draw: st.DrawFn, shape: Shape, mesh: Shape) -> str:
    """The text of a spec whose axes divide the dims of `shape`."""
    parts: list[list[str]] = [[] for _ in shape]
    local = list(shape)
    for axis in draw(st.permutations(range(len(mesh)))):
        fitting = [dim for dim, size in enumerate(local) if size % mesh[axis] == 0 and size]
        dim = draw(st.sampled_from([None, *fitting]))
        if dim is not None:
            parts[dim].append(AXES[axis])
            local[dim] //= mesh[axis]
    entries = [None if not part else part[0] if len(part) == 1 else tuple(part) for part in parts]
    while entries and entries[-1] is None and draw(st.booleans()):
        entries.pop()
    return f"P({', '.join(map(repr, entries))})"


FAMILIES: dict[str, st.SearchStrategy[Case]] = {}
# Families in which JAX's explicit types tell more of how it builds a function than of the function.
AUTOMATIC_ONLY = {"composed_of_two"}


def family(make: Callable[..., Case]) -> Callable[..., Case]:
    """Register a strategy for cases under the name of the function that draws them."""
    FAMILIES[make.__name__] = st.composite(make)()
    return make


def shapes(least: int = 0, most: int = 3) -> st.SearchStrategy[Shape]:
    """Shapes of `least` to `most` dims."""
    return st.lists(st.sampled_from(SIZES), min_size=least, max_size=most).map(tuple)


def one_of(draw: st.DrawFn, choices: Sequence[str]) -> str:
    """One of the texts."""
    return draw(st.sampled_from(choices))


def dim_of(draw: st.DrawFn, shape: Shape) -> int:
    """A dim of `shape`, counted from either end."""
    return draw(st.integers(-len(shape), len(shape) - 1))


@family
def unary(draw: st.DrawFn) -> Case:
    """Elementwise functions of one array."""
    name = one_of(
        draw,
        "sin cos tan tanh exp expm1 log1p sqrt rsqrt abs negative sign floor ceil round square reciprocal sinh cosh "
        "arctan arcsinh isnan isfinite logical_not sigmoid relu gelu silu softplus erf exp2 cbrt positive".split(),
    )
    dtype = "bool" if name == "logical_not" else draw(st.sampled_from(FLOATS))
    function = {"rsqrt": "lax.rsqrt", "erf": "lax.erf"}.get(name, f"jnp.{name}")
    if name in ("sigmoid", "relu", "gelu", "silu", "softplus"):
        function = f"jax.nn.{name}"
    argument = "jnp.abs(a) + 1" if name in ("sqrt", "rsqrt", "log1p", "reciprocal") else "a"
    return Case(f"{function}({argument})", ((draw(shapes()), dtype),), ulps=64)


@family
def binary(draw: st.DrawFn) -> Case:
    """Elementwise functions of two arrays, which broadcast."""
    a = draw(shapes())
    kept = draw(st.integers(0, len(a)))
    b = tuple(draw(st.sampled_from((1, size))) for size in a[kept:])
    if draw(st.booleans()):
        a, b = b, a
    operator = one_of(draw, ("+", "-", "*", "<", "<=", "==", "!=", "/", "//", "%", "&", "|", "^"))
    bits, division = operator in "&|^", operator in ("/", "//", "%")
    dtypes = (*INTS, "bool") if bits else INTS + FLOATS
    right = "(jnp.abs(b) + 1)" if division else "b"
    if draw(st.booleans()) and not bits:
        scalar = one_of(draw, ("2", "1.5", "3"))
        return Case(f"a {operator} {scalar}", ((a, draw(st.sampled_from(dtypes))),))
    first = draw(st.sampled_from(dtypes))
    return Case(f"a {operator} {right}", ((a, first), (b, draw(st.sampled_from(dtypes)))), ulps=64)


@family
def functions_of_two(draw: st.DrawFn) -> Case:
    """Named elementwise functions of two or three arrays of one shape."""
    name = one_of(
        draw,
        ("jnp.maximum", "jnp.minimum", "jnp.arctan2", "jnp.logaddexp", "jnp.hypot", "where", "clip"),
    )
    shape = draw(shapes())
    expression = {"where": "jnp.where(a > 0, a, b)", "clip": "jnp.clip(a, -1, b)"}.get(name, f"{name}(a, b)")
    return Case(expression, ((shape, "float32"), (shape, "float32")), ulps=64)


@family
def composed_of_two(draw: st.DrawFn) -> Case:
    """Functions that JAX composes of several ops, each with its own idea of explicit shardings."""
    name = one_of(draw, ("copysign", "heaviside", "fmax", "fmod", "nextafter", "isclose", "logical_xor", "ldexp"))
    shape = draw(shapes())
    second = "int32" if name == "ldexp" else "float32"
    return Case(f"jnp.{name}(a, b)", ((shape, "float32"), (shape, second)), ulps=16)


@family
def reduction(draw: st.DrawFn) -> Case:
    """Reductions over some dims."""
    shape = draw(shapes(1))
    name = one_of(draw, ("sum", "max", "min", "mean", "prod", "any", "all", "var", "std", "argmax", "argmin", "ptp"))
    if name in ("argmax", "argmin"):
        axes: object = draw(st.sampled_from([None, *range(len(shape))]))
    else:
        axes = draw(st.none() | st.lists(st.sampled_from(range(len(shape))), unique=True, min_size=1).map(tuple))
    dtype = "bool" if name in ("any", "all") else draw(st.sampled_from(("float32", "int32", "int8", "uint8")))
    if name in ("mean", "var", "std", "prod"):
        dtype = "float32"
    keep = draw(st.booleans())
    return Case(f"jnp.{name}(a, axis={axes}, keepdims={keep})", ((shape, dtype),), ulps=64)


@family
def normalization(draw: st.DrawFn) -> Case:
    """Reductions that keep the shape."""
    shape = draw(shapes(1))
    name = one_of(draw, ("jax.nn.softmax", "jax.nn.log_softmax", "jax.nn.standardize"))
    return Case(f"{name}(a, axis={dim_of(draw, shape)})", ((shape, "float32"),), ulps=256)


@family
def cumulative(draw: st.DrawFn) -> Case:
    """Running reductions."""
    shape = draw(shapes(1))
    name = one_of(draw, ("jnp.cumsum", "lax.cummax", "lax.cummin", "jnp.cumsum"))
    axis = draw(st.integers(0, len(shape) - 1))
    return Case(f"{name}(a, axis={axis})", ((shape, draw(st.sampled_from(("float32", "int32")))),))


@family
def sorting(draw: st.DrawFn) -> Case:
    """Sorting along a dim."""
    shape = draw(shapes(1))
    axis = dim_of(draw, shape)
    name = one_of(draw, ("sort", "argsort", "top_k"))
    dtype = draw(st.sampled_from(("float32", "int32", "uint8")))
    if name == "top_k":
        return Case(f"lax.top_k(a, {draw(st.integers(1, shape[-1]))})", ((shape, dtype),))
    return Case(f"jnp.{name}(a, axis={axis})", ((shape, dtype),))


@family
def matmul(draw: st.DrawFn) -> Case:
    """Matrix products, with batch dims."""
    m, k, n = (draw(st.sampled_from(SIZES)) for _ in range(3))
    batch = draw(shapes(0, 1))
    a = draw(st.sampled_from([(k,), (m, k), (*batch, m, k)]))
    b = draw(st.sampled_from([(k,), (k, n), (*batch, k, n)]))
    dtypes = draw(
        st.sampled_from([("float32", "float32"), ("int32", "int32"), ("bfloat16", "bfloat16"), ("int8", "float32")])
    )
    return Case("a @ b", ((a, dtypes[0]), (b, dtypes[1])))


@family
def einsum(draw: st.DrawFn) -> Case:
    """Contractions in general."""
    pattern = one_of(
        draw,
        (
            "ij,jk->ik",
            "ij,kj->ki",
            "bij,bjk->bik",
            "bqd,bkd->bqk",
            "ij,ij->",
            "ij,ij->i",
            "i,j->ij",
            "bij,kj->bki",
            "ij->ji",
            "ii->i",
        ),
    )
    sizes = {letter: draw(st.sampled_from(SIZES)) for letter in sorted(set(pattern) - set(",->"))}
    operands = tuple((tuple(sizes[letter] for letter in part), "float32") for part in pattern.split("->")[0].split(","))
    return Case(f"jnp.einsum({pattern!r}, {', '.join('ab'[: len(operands)])})", operands)


@family
def reshape(draw: st.DrawFn) -> Case:
    """Reshapes: merging, splitting and both."""
    shape = draw(shapes(1))
    size = math.prod(shape)
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    first = draw(st.sampled_from(divisors))
    second = draw(st.sampled_from([n for n in divisors if (size // first) % n == 0]))
    target = draw(
        st.sampled_from([(size,), (first, size // first), (first, second, size // first // second), (1, *shape)])
    )
    return Case(f"a.reshape({target})", ((shape, draw(st.sampled_from(("float32", "int32")))),))


@family
def rearrangement(draw: st.DrawFn) -> Case:
    """Moving, adding and removing dims, flips, rolls, repetition."""
    shape = draw(shapes(1))
    axis = dim_of(draw, shape)
    order = draw(st.permutations(range(len(shape))))
    shift = draw(st.integers(-5, 5))
    expression = one_of(
        draw,
        (
            f"a.transpose({tuple(order)})",
            "a.T",
            f"jnp.expand_dims(a, {axis})",
            f"jnp.squeeze(a[None], 0) + jnp.broadcast_to(a, (2, *{shape}))",
            f"jnp.flip(a, {axis})",
            f"jnp.roll(a, {shift}, {axis})",
            "jnp.tile(a, 2)",
            f"jnp.repeat(a, 2, axis={axis})",
            f"jnp.moveaxis(a, {axis}, 0)",
            f"jnp.swapaxes(a, 0, {axis})",
        ),
    )
    return Case(expression, ((shape, draw(st.sampled_from(("float32", "int8", "bool")))),))


@family
def joining(draw: st.DrawFn) -> Case:
    """Concatenation, stacking, splitting, padding."""
    shape = draw(shapes(1))
    axis = dim_of(draw, shape)
    other = list(shape)
    other[axis] = draw(st.sampled_from(SIZES))
    name = one_of(draw, ("concatenate", "stack", "split", "pad", "pad_lax"))
    a, same = (shape, "float32"), (shape, "int32")
    if name == "concatenate":
        return Case(f"jnp.concatenate([a, b], axis={axis})", (a, (tuple(other), "float32")))
    if name == "stack":
        return Case(f"jnp.stack([a, b], axis={axis})", (a, same))
    if name == "split":
        parts = draw(st.sampled_from([n for n in range(1, shape[axis] + 1) if shape[axis] % n == 0]))
        return Case(f"jnp.split(a, {parts}, axis={axis})", (a,))
    if name == "pad":
        mode = one_of(draw, ("constant", "edge", "wrap"))
        return Case(f"jnp.pad(a, {draw(st.integers(0, 2))}, mode={mode!r})", (a,))
    config = [(*(draw(st.integers(-1 if size > 2 else 0, 2)) for _ in "lh"), draw(st.integers(0, 1))) for size in shape]
    return Case(f"lax.pad(a, np.float32(1.5), {config})", (a,))


@family
def basic_indexing(draw: st.DrawFn) -> Case:
    """Integers, slices and new dims in brackets."""
    shape = draw(shapes(1))
    parts = []
    for size in shape[: draw(st.integers(1, len(shape)))]:
        if draw(st.booleans()):
            parts.append(str(draw(st.integers(-size, size - 1))))
        else:
            first, last = sorted(draw(st.tuples(*[st.integers(0, size - 1)] * 2)))
            step = draw(st.sampled_from((1, 1, 2, -1, 3)))
            start, stop = (first, last + 1) if step > 0 else (last, first - size - 1)
            parts.append(f"{start}:{stop}:{step}")
        if draw(st.integers(0, 5)) == 0:
            parts.append("None")
    return Case(f"a[{', '.join(parts)}]", ((shape, draw(st.sampled_from(("float32", "int32")))),))


@family
def advanced_indexing(draw: st.DrawFn) -> Case:
    """Gathers: index arrays, `take`, `take_along_axis`, and indices that are out of bounds."""
    shape = draw(shapes(1))
    axis = draw(st.integers(0, len(shape) - 1))
    indices = draw(shapes(0, 2))
    along = list(shape)
    along[axis] = draw(st.sampled_from(SIZES))
    colons = ":, " * axis
    expression, index_shape = draw(
        st.sampled_from(
            [
                (f"a[{colons}b]", indices),
                (f"jnp.take(a, b, axis={axis}, mode='clip')", indices),
                (f"jnp.take(a, b, axis={axis})", indices),
                (f"jnp.take_along_axis(a, b % {shape[axis]}, axis={axis})", tuple(along)),
                (f"a.at[{colons}b].get(mode='fill', fill_value=7)", indices),
            ]
        )
    )
    return Case(expression, ((shape, "float32"), (index_shape, "int32")))


@family
def updates(draw: st.DrawFn) -> Case:
    """`.at[...]`, dynamic slices and their updates."""
    shape = draw(shapes(1))
    rows = draw(st.sampled_from(SIZES))
    size = draw(st.integers(1, shape[0]))
    start = draw(st.integers(-2, shape[0] + 1))
    expression, second = draw(
        st.sampled_from(
            [
                ("a.at[0].set(b)", (shape[1:], "float32")),
                ("a.at[b].add(1)", ((rows,), "int32")),
                ("a.at[b].max(2)", ((rows,), "int32")),
                ("a.at[b].multiply(2, mode='drop')", ((rows,), "int32")),
                ("a.at[-1].min(b)", (shape[1:], "float32")),
                (f"a.at[:{size}].set(b)", ((size, *shape[1:]), "float32")),
                (f"lax.dynamic_slice_in_dim(a, {start}, {size}) + 0 * b", ((), "float32")),
                (f"lax.dynamic_update_slice_in_dim(a, b, {start}, 0)", ((size, *shape[1:]), "float32")),
            ]
        )
    )
    return Case(expression, ((shape, "float32"), second))


@family
def conversion(draw: st.DrawFn) -> Case:
    """Casts between dtypes."""
    source, target = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(DTYPES))
    argument = "jnp.abs(a)" if target.startswith("u") and not source.startswith(("u", "b")) else "a"
    return Case(f"{argument}.astype({target!r})", ((draw(shapes()), source),))


@family
def creation(draw: st.DrawFn) -> Case:
    """Arrays made inside a program, beside a sharded operand."""
    shape = draw(shapes(1))
    expression = one_of(
        draw,
        (
            f"a + jnp.arange({shape[-1]})",
            f"a * jnp.ones({shape})",
            f"jnp.full({shape}, 2.5) - a",
            "jnp.zeros_like(a)",
            f"jnp.eye({shape[-1]}) * a.sum()",
            f"lax.iota('int32', {shape[-1]}) + a",
            f"jnp.linspace(0, 1, {shape[-1]}) * 0 + a",
            f"jnp.tri({shape[-1]}) * a.max()",
            "jax.nn.one_hot(a.astype('int32') % 4, 4)",
        ),
    )
    dtype = "int32" if expression.startswith("lax.iota") else "float32"
    return Case(expression, ((shape, dtype),))


@family
def control_flow(draw: st.DrawFn) -> Case:
    """Loops and branches."""
    n = draw(st.sampled_from(SIZES))
    rows = draw(st.sampled_from(SIZES))
    expression = one_of(
        draw,
        (
            "lax.fori_loop(0, 3, lambda i, c: c + i, a)",
            "lax.while_loop(lambda c: c.sum() < 100, lambda c: jnp.abs(c) + 1, a)",
            "lax.scan(lambda c, row: (c + row, c * 2), jnp.zeros_like(a[0]), a)",
            "lax.cond(a.sum() > 0, lambda: a + 1, lambda: a * 2)",
            "lax.map(lambda row: row.sum(), a)",
            "lax.switch(1, [lambda x: x, lambda x: x.T.T + 1], a)",
            "jax.vmap(lambda row: row - row.max())(a)",
        ),
    )
    return Case(expression, (((rows, n), "float32"),))


@family
def convolution(draw: st.DrawFn) -> Case:
    """Convolutions of one and two spatial dims."""
    if draw(st.booleans()):
        mode = one_of(draw, ("full", "same", "valid"))
        n, k = draw(st.sampled_from((4, 6, 8, 12))), draw(st.sampled_from((1, 2, 3, 4)))
        return Case(f"jnp.convolve(a, b, {mode!r})", (((n,), "float32"), ((k,), "float32")))
    batch, channels, features = (draw(st.sampled_from((1, 2, 4))) for _ in range(3))
    padding = one_of(draw, ("'SAME'", "'VALID'", "[(1, 1), (0, 2)]"))
    strides = draw(st.sampled_from([(1, 1), (2, 1), (2, 2)]))
    return Case(
        f"lax.conv_general_dilated(a, b, {strides}, {padding})",
        (((batch, channels, 8, 6), "float32"), ((features, channels, 3, 2), "float32")),
    )


@family
def random_bits(draw: st.DrawFn) -> Case:
    """Random numbers, which do not depend on any sharding."""
    shape = draw(shapes(0, 2))
    expression = one_of(
        draw,
        (
            f"a + jax.random.uniform(jax.random.key(3), {shape})",
            f"a * jax.random.normal(jax.random.PRNGKey(0), {shape})",
            f"a.astype('int32') + jax.random.randint(jax.random.key(5), {shape}, 0, 100)",
            f"jax.random.bernoulli(jax.random.split(jax.random.key(1))[0], 0.3, {shape}) & (a > 0)",
        ),
    )
    return Case(expression, ((shape, "float32"),), ulps=64)
