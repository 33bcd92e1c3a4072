"""Ops on elements: arithmetic, functions, comparisons, choices, conversions, bits, and random numbers."""

from __future__ import annotations

from tests.fuzz.grow import DTYPES, Draft, Grower, op
from tests.fuzz.program import Quality, Value
from tests.fuzz.qualities import EPSILON, LARGEST_INT, Unsuitable, cast, kind

# Lipschitz functions: how much noise grows, and the bound of the result for the bound of the argument.
FUNCTIONS = {
    "jnp.tanh({})": (1, lambda b: 1),
    "jnp.sin({})": (1, lambda b: 1),
    "jnp.cos({})": (1, lambda b: 1),
    "jax.nn.sigmoid({})": (1, lambda b: 1),
    "jnp.arctan({})": (1, lambda b: 1.6),
    "lax.erf({})": (1.2, lambda b: 1),
    "jax.nn.softplus({})": (1, lambda b: b + 1),
    "jax.nn.gelu({})": (1.2, lambda b: b),
    "jax.nn.silu({})": (1.2, lambda b: b),
    "jax.nn.elu({})": (1, lambda b: b + 1),
    "jnp.log1p(jnp.square({}))": (1, lambda b: b + 1),
    "jnp.sqrt(1 + jnp.square({}))": (1, lambda b: b + 1),
    "lax.rsqrt(1 + jnp.square({}))": (1, lambda b: 1),
    "jnp.exp(-jnp.square({}))": (1, lambda b: 1),
    "jnp.expm1(jnp.tanh({}))": (3, lambda b: 2),
    "jnp.exp2(jnp.sin({}))": (2, lambda b: 2),
    "jnp.sinh(jnp.tanh({}))": (2, lambda b: 2),
    "jnp.cosh(jnp.sin({}))": (2, lambda b: 2),
    "jnp.arcsinh({})": (1, lambda b: b + 1),
    "jnp.log(2 + jnp.cos({}))": (1, lambda b: 2),
    "jnp.arcsin(jnp.sin({}) / 2)": (1, lambda b: 1),
    "1 / (2 + jnp.sin({}))": (1, lambda b: 1),
    "{} / (1 + jnp.square({}))": (2, lambda b: 1),
    "jnp.logaddexp({}, 0.5)": (1, lambda b: b + 1),
    "jax.nn.log_sigmoid({})": (1, lambda b: b + 1),
    "(2 + jnp.sin({})) ** 1.5": (3, lambda b: 6),
    "jnp.hypot({}, 2.0)": (1, lambda b: b + 2),
}


def merged(*qs: Quality, step: float = 1.0, bound: float | None = None, gain: float = 1.0) -> Quality:
    """The quality of what is one of the elements of several values, or their sum with `bound` and `gain` given."""
    steps = [q.step for q in qs]
    least = None if None in steps else min(step, *[s for s in steps if s is not None])
    top = max(q.bound for q in qs) if bound is None else bound
    return Quality(least, top, gain * max(q.noise for q in qs))


@op(3)
def function(g: Grower) -> Draft:
    x = g.tame("f")
    text = g.choice(list(FUNCTIONS))
    gain, bound = FUNCTIONS[text]
    q = x.quality
    top = bound(q.bound)
    return Draft(text.replace("{}", x.name), Quality(None, top, gain * q.noise + 16 * EPSILON[x.dtype] * (top + 1)))


@op(1)
def exact_function(g: Grower) -> Draft:
    x = g.tame("fi", exact=True)
    text, step, grow = g.choice(
        [
            ("-{}", 1, 1), ("jnp.abs({})", 1, 1), ("jnp.square({})", 2, 2), ("jnp.floor({})", 0, 1), ("jnp.ceil({})", 0, 1),
            ("jnp.round({})", 0, 1), ("jnp.sign({})", 0, 0), ("jnp.maximum({}, 0)", 1, 1), ("jax.nn.relu({})", 1, 1),
            ("jnp.trunc({})", 0, 1), ("{} ** 2", 2, 2), ("lax.integer_pow({}, 3)", 3, 3), ("jnp.positive({})", 1, 1),
            ("jnp.nan_to_num({}, posinf=2.0, neginf=-3.0)", 1, 1), ("jax.nn.hard_tanh({})", 1, 1), ("jnp.fabs({})", 1, 1),
            ("jax.nn.relu6({})", 1, 1), ("jnp.conjugate({})", 1, 1), ("jnp.heaviside({}, 0.5)", 1, 0),
        ]
    )  # fmt: skip
    q = x.quality
    assert q.step is not None
    if kind(x.dtype) == "i" and "uint" in x.dtype:
        return Draft(text.format(x), Quality(min(1.0, q.step), LARGEST_INT[x.dtype] * 1.0))
    bound = max(q.bound, 1) ** grow + 3
    return Draft(text.format(x), Quality(min(q.step, 1.0) ** step if step else 0.5, bound))


def _other(g: Grower, x: Value, kinds: str = "fic", exact: bool = False) -> Value:
    """A value that broadcasts with `x`."""

    def broadcasts(v: Value) -> bool:
        return all(m == n or 1 in (m, n) for m, n in zip(v.shape[::-1], x.shape[::-1], strict=False))

    return g.tame(kinds, exact=exact, where=broadcasts)


@op(5)
def arithmetic(g: Grower) -> Draft:
    x = g.tame("fic")
    y = _other(g, x)
    p, q = x.quality, y.quality
    sign = g.choice(("+", "-", "*", "*"))
    step = None if p.step is None or q.step is None else (p.step * q.step if sign == "*" else min(p.step, q.step))
    if sign == "*":
        bound, noise = p.bound * q.bound, p.noise * q.bound + q.noise * p.bound
    else:
        bound, noise = p.bound + q.bound, p.noise + q.noise
    wraps = sign == "-" and "u" in x.dtype[0] + y.dtype[0]
    complex_one = 2 if sign == "*" and "complex64" in (x.dtype, y.dtype) else 1
    return Draft(
        f"{x} {sign} {y}",
        lambda dtype: Quality(step, LARGEST_INT[dtype] if wraps and kind(dtype) == "i" else bound * complex_one, noise),
    )


@op(3)
def with_scalar(g: Grower) -> Draft:
    x = g.tame("fi")
    q = x.quality
    text, scale, shift = g.choice(
        [
            ("{} * 2", 2, 0), ("{} + 1", 1, 1), ("2.5 * {}", 2.5, 0), ("{} - 1.5", 1, 2), ("3 - {}", 1, 3), ("{} / 2", 0.5, 0),
            ("{} * True", 1, 0), ("0.5 + {}", 1, 0.5), ("jnp.float32(0.5) * {}", 0.5, 0), ("{} * np.float32(2)", 2, 0),
            ("jnp.add({}, 1)", 1, 1), ("{} * jnp.asarray(2)", 2, 0), ("-2 * {}", 2, 0), ("{} * np.int8(3)", 3, 0),
            ("{} + np.float64(1)", 1, 1), ("lax.mul({}, lax.full_like({}, 2))", 2, 0), ("{} + jnp.int32(3)", 1, 3),
            ("{} - jnp.ones((), jnp.bfloat16)", 1, 1),
        ]
    )  # fmt: skip
    wraps = "uint" in x.dtype and any(s in text for s in ("-2", "- ", "3 -"))
    step = None if q.step is None else min(q.step, 1.0) / 2
    return Draft(
        text.replace("{}", x.name),
        lambda dtype: Quality(
            step, LARGEST_INT[dtype] if kind(dtype) == "i" and wraps else q.bound * scale + shift, q.noise * 3
        ),
    )


@op(1)
def quotient(g: Grower) -> Draft:
    x = g.tame("f")
    y = _other(g, x, "f")
    p, q = x.quality, y.quality
    noise = p.noise + q.noise * p.bound + 8 * max(EPSILON[x.dtype], EPSILON[y.dtype]) * p.bound
    text = g.choice(("{} / (1 + jnp.abs({}))", "jnp.divide({}, 1 + jnp.square({}))"))
    if g.smooth and not q.exact:
        text = "{} / (1 + jnp.square({}))"
    return Draft(text.format(x, y), Quality(None, p.bound, 2 * noise))


@op(1)
def whole_division(g: Grower) -> Draft:
    x = g.tame("fi", exact=True)
    text = g.choice(
        (
            "{} // 2",
            "{} % 3",
            "jnp.fmod({}, 2)",
            "divmod({}, 3)[0]",
            "divmod({}, 3)[1]",
            "lax.rem({}, lax.full_like({}, 2))",
        )
    )
    q = x.quality
    assert q.step is not None
    bound = LARGEST_INT[x.dtype] if "uint" in x.dtype else max(q.bound, 4)
    return Draft(text.replace("{}", x.name), Quality(min(q.step, 1.0), bound))


@op(0.7)
def whole_division_by_array(g: Grower) -> Draft:
    x = g.tame("i", exact=True)
    y = _other(g, x, "i")
    text = g.choice(("{} // {}", "{} % {}", "lax.div({}, {})", "lax.rem({}, {})"))
    if "lax" in text and x.dtype != y.dtype:
        raise Unsuitable
    return Draft(text.format(x, y), lambda dtype: Quality(1.0, LARGEST_INT.get(dtype, 1)))


@op(2)
def extremum(g: Grower) -> Draft:
    x = g.tame("fi", exact=g.smooth > 0)
    y = _other(g, x, "fi", exact=g.smooth > 0)
    text = g.choice(
        ("jnp.maximum({}, {})", "jnp.minimum({}, {})", "jnp.fmax({}, {})", "jnp.fmin({}, {})", "jnp.clip({}, -1, {})")
    )
    return Draft(text.format(x, y), lambda dtype: _clip_bound(dtype, merged(x.quality, y.quality)))


def _clip_bound(dtype: str, q: Quality) -> Quality:
    return Quality(q.step, LARGEST_INT[dtype] if dtype.startswith("u") else max(q.bound, 1), q.noise)


@op(2)
def comparison(g: Grower) -> Draft:
    x = g.tame("fi", exact=True)
    sign = g.choice(("<", "<=", ">", ">=", "==", "!="))
    if g.chance(0.4):
        return Draft(f"{x} {sign} {g.choice((0, 1, 2.5))}", Quality(1.0, 1.0))
    y = _other(g, x, exact=True, kinds="fi")
    return Draft(f"{x} {sign} {y}", Quality(1.0, 1.0))


@op(1)
def test(g: Grower) -> Draft:
    x = g.value("f")
    return Draft(
        g.choice(("jnp.isnan({})", "jnp.isfinite({})", "jnp.isinf({})", "~jnp.isfinite({})")).format(x),
        Quality(1.0, 1.0),
    )


@op(2)
def choice(g: Grower) -> Draft:
    c = g.value("b")
    x = _other(g, c, "fi")
    y = _other(g, x, "fi")
    if g.chance(0.3):
        scalar = g.choice(("0", "1.5", "-2.0", "jnp.float32(1)"))
        text = g.choice(("jnp.where({0}, {1}, {2})", "jnp.where({0}, {2}, {1})")).format(c, x, scalar)
        wraps = x.dtype.startswith("u")
        q = x.quality
        step = None if q.step is None else min(q.step, 0.5)
        return Draft(
            text, lambda d: Quality(step, LARGEST_INT[d] if wraps and kind(d) == "i" else max(2, q.bound), q.noise)
        )
    text = g.choice(("jnp.where({0}, {1}, {2})", "jnp.where(~{0}, {1}, {2})", "jnp.select([{0}], [{1}], {2})"))
    if c.shape == x.shape == y.shape and x.dtype == y.dtype:
        text = g.choice((text, "lax.select({0}, {1}, {2})"))
    return Draft(
        text.format(c, x, y),
        lambda d: _clip_bound(d, merged(x.quality, y.quality)) if kind(d) == "i" else merged(x.quality, y.quality),
    )


@op(1)
def logic(g: Grower) -> Draft:
    x = g.value("b")
    if g.chance(0.3):
        return Draft(g.choice(("~{}", "jnp.logical_not({})")).format(x), Quality(1.0, 1.0))
    y = _other(g, x, "b") if g.chance(0.8) else x
    return Draft(
        g.choice(("{} & {}", "{} | {}", "{} ^ {}", "jnp.logical_xor({}, {})", "{} + {}", "{} * {}")).format(x, y),
        Quality(1.0, 1.0),
    )


@op(1.5)
def bits(g: Grower) -> Draft:
    x = g.value("i")
    unary = ("~{}", "lax.population_count({})", "lax.clz({})", "{} << 1", "{} >> 1", "{} & 3", "{} | 1", "{} ^ 5", "-{}",
             "lax.shift_right_logical({0}, lax.full_like({0}, 2))", "{} * 7 + 1", "jnp.invert({})", "jnp.bitwise_count({})")  # fmt: skip
    if g.chance(0.6):
        return Draft(g.choice(unary).format(x), lambda d: Quality(1.0, LARGEST_INT[d]))
    y = _other(g, x, "ib")
    text = g.choice(("{} & {}", "{} | {}", "{} ^ {}", "{} << ({} & 3)", "{} >> ({} & 3)", "{} * {}"))
    return Draft(text.format(x, y), lambda d: Quality(1.0, LARGEST_INT.get(d, 1)))


@op(2)
def conversion(g: Grower) -> Draft:
    target = g.choice(DTYPES)
    x = g.tame("fib" if target != "complex64" else "fibc")
    text = g.choice(("{}.astype({!r})", "lax.convert_element_type({}, {!r})", "jnp.asarray({}, {!r})"))
    return Draft(text.format(x, target), cast(x, target))


@op(0.3)
def reinterpretation(g: Grower) -> Draft:
    x = g.value("fi", exact=True)
    target = {
        "float32": "int32",
        "int32": "uint32",
        "uint32": "int32",
        "int8": "uint8",
        "uint8": "int8",
        "bfloat16": "int16",
        "float16": "uint16",
        "int16": "uint16",
    }.get(x.dtype)
    if target is None or g.special:  # a NaN has many patterns
        raise Unsuitable
    return Draft(f"lax.bitcast_convert_type({x}, {target!r})", Quality(1.0, LARGEST_INT[target]))


@op(1)
def complex_numbers(g: Grower) -> Draft:
    if g.special:
        raise Unsuitable
    try:
        z = g.tame("c")
    except Unsuitable:
        x = g.tame("f", exact=True, where=lambda v: v.dtype == "float32")
        y = g.tame("f", exact=True, where=lambda v: v.dtype == "float32" and v.shape == x.shape)
        return Draft(f"lax.complex({x}, {y})", merged(x.quality, y.quality, bound=x.quality.bound + y.quality.bound))
    q = z.quality
    text = g.choice(
        ("{}.real", "{}.imag", "jnp.conj({})", "{} * 1j", "-{}", "jnp.abs({})", "jnp.real({} * jnp.conj({}))", "{} + 2")
    )
    if "abs" in text:
        return Draft(text.format(z), Quality(None, q.bound, q.noise + 8 * EPSILON["float32"] * q.bound))
    if "conj({})" in text[5:]:
        return Draft(
            text.replace("{}", z.name),
            Quality(None if q.step is None else q.step**2, 2 * q.bound**2, 4 * q.noise * q.bound),
        )
    return Draft(text.replace("{}", z.name), Quality(q.step, q.bound + 2, q.noise))


@op(1.5)
def random_numbers(g: Grower) -> Draft:
    key = f"jax.random.key({g.integer(0, 9)})"
    if g.chance(0.3):
        key = f"jax.random.fold_in({key}, {g.integer(0, 9)})"
    if g.chance(0.3):
        key = f"jax.random.split({key}, 3)[{g.integer(0, 2)}]"
    if g.chance(0.2):
        i = g.tame("i", exact=True, where=lambda v: v.ndim == 0)
        key = f"jax.random.fold_in({key}, {i})"
    shape = g.shape(0, 3)
    text, q = g.choice(
        [
            ("jax.random.uniform({}, {})", Quality(None, 1.0, 2.0**-22)),
            ("jax.random.normal({}, {})", Quality(None, 6.0, 2.0**-18)),
            ("jax.random.randint({}, {}, 0, 5)", Quality(1.0, 5.0)),
            ("jax.random.bits({}, {})", Quality(1.0, 2.0**32)),
            ("jax.random.bernoulli({}, 0.5, {})", Quality(1.0, 1.0)),
            ("jax.random.uniform({}, {}, jnp.bfloat16)", Quality(None, 1.0, 2.0**-8)),
            ("jax.random.rademacher({}, {})", Quality(1.0, 1.0)),
            ("jax.random.exponential({}, {})", Quality(None, 20.0, 2.0**-16)),
        ]
    )
    return Draft(text.format(key, shape), q)


@op(0.5)
def creation(g: Grower) -> Draft:
    shape = g.shape(1, 2)
    x = g.value("fi")
    text = g.choice(
        (f"jnp.arange({shape[0]})", f"jnp.ones({shape})", f"jnp.zeros({shape}, 'int32')", f"jnp.full({shape}, 2.5)", f"jnp.eye({shape[0]})",
         f"jnp.tri({shape[0]})", f"lax.broadcasted_iota('int32', {shape}, 0) % 4", f"jnp.ones_like({x})", f"jnp.full_like({x}, 2)",
         f"np.ones({shape}, np.int8)", f"data({shape}, 'float32', {g.integer(0, 9)})", f"data({shape}, 'int32', {g.integer(0, 9)})")
    )  # fmt: skip
    return Draft(f"jnp.asarray({text})", Quality(0.25, max([9.0, *map(float, shape)])))
