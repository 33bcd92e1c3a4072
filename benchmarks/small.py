"""Many steps on few numbers: long chains, loops with scalars, integrators, random walks. One device: nothing here is worth splitting."""

from __future__ import annotations

from registry import case, normal, rows

FAMILY, LARGE = "Small programs", "Loops over large arrays"


@case(FAMILY, devices=(1,))
def chain_100(jax, jnp, np):
    """`jit` of 100 ops in a row on 8 floats."""

    def chain(x):
        for _ in range(50):
            x = x * 0.9 + 0.1
        return x

    f, x = jax.jit(chain), jnp.arange(8.0)
    return lambda: f(x)


@case(FAMILY, devices=(1,))
def fori_1000(jax, jnp, np):
    """`fori_loop` of 1000 steps on a scalar."""
    f = jax.jit(lambda x: jax.lax.fori_loop(0, 1000, lambda i, c: c * 0.5 + i, x))
    x = jnp.float32(1)
    return lambda: f(x)


@case(FAMILY, devices=(1,))
def while_newton(jax, jnp, np):
    """A square root by Newton's method in a `while_loop`."""

    def root(y):
        return jax.lax.while_loop(lambda x: jnp.abs(x * x - y) > 1e-3, lambda x: x - (x * x - y) / (2 * x), y)

    f, y = jax.jit(root), jnp.float32(1234)
    return lambda: f(y)


@case(FAMILY, devices=(1,))
def lorenz(jax, jnp, np):
    """1000 steps of Runge and Kutta through Lorenz's equations, a `scan`."""

    def slope(state):
        x, y, z = state
        return jnp.array([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    def step(state, _):
        h = 0.01
        a = slope(state)
        b = slope(state + h / 2 * a)
        c = slope(state + h / 2 * b)
        d = slope(state + h * c)
        state = state + h / 6 * (a + 2 * b + 2 * c + d)
        return state, state

    f, start = jax.jit(lambda s: jax.lax.scan(step, s, None, length=1000)), jnp.ones(3)
    return lambda: f(start)


@case(FAMILY, devices=(1,))
def mandelbrot(jax, jnp, np):
    """50 rounds of Mandelbrot's map on 32 times 32 points, a `fori_loop`."""
    real, imaginary = (
        jnp.asarray(v.astype(np.float32)) for v in np.meshgrid(np.linspace(-2, 1, 32), np.linspace(-1, 1, 32))
    )

    def rounds(real, imaginary):
        def step(_, state):
            x, y, n = state
            inside = x * x + y * y < 4
            return jnp.where(inside, x * x - y * y + real, x), jnp.where(inside, 2 * x * y + imaginary, y), n + inside

        return jax.lax.fori_loop(0, 50, step, (real, imaginary, jnp.zeros(real.shape, jnp.int32)))[2]

    f = jax.jit(rounds)
    return lambda: f(real, imaginary)


@case(FAMILY, devices=(1,))
def random_walk(jax, jnp, np):
    """A random walk of 100 steps in the plane that splits its key at each."""

    def step(state, _):
        key, place = state
        key, own = jax.random.split(key)
        place = place + jax.random.normal(own, (2,))
        return (key, place), place

    f, key = jax.jit(lambda key: jax.lax.scan(step, (key, jnp.zeros(2)), None, length=100)[1]), jax.random.key(0)
    return lambda: f(key)


@case(FAMILY, devices=(1,))
def bodies(jax, jnp, np):
    """200 steps of 8 bodies that attract each other, a `scan`."""
    rng = np.random.default_rng(0)
    places, speeds = (jnp.asarray(rng.normal(size=(8, 3)).astype(np.float32)) for _ in range(2))

    def step(state, _):
        p, v = state
        apart = p[:, None] - p[None]
        near = (apart * apart).sum(-1) + 0.01
        v = v - 0.01 * (apart / (near * jnp.sqrt(near))[..., None]).sum(1)
        return (p + 0.01 * v, v), None

    f = jax.jit(lambda p, v: jax.lax.scan(step, (p, v), None, length=200)[0])
    return lambda: f(places, speeds)


@case(FAMILY, devices=(1,))
def triangular_steps(jax, jnp, np):
    """10,000 steps of a `scan`, each of which solves a triangular system of 4."""
    a = jnp.tril(jnp.ones((4, 4))) + 3 * jnp.eye(4)
    solve = jax.scipy.linalg.solve_triangular

    def step(x, _):
        return solve(a, x, lower=True) * 0.5 + 1, None

    f, x = jax.jit(lambda x: jax.lax.scan(step, x, None, length=10_000)[0]), jnp.ones(4)
    return lambda: f(x)


def _factored(name, text, make):
    def prepare(jax, jnp, np):
        a = normal(np, 4, 4)
        a = jnp.asarray(a @ a.T + 4 * np.eye(4, dtype=np.float32))
        step = make(jax, jnp)
        f = jax.jit(lambda x: jax.lax.fori_loop(0, 1000, lambda i, x: step(a + 0.001 * x), x))
        x = jnp.eye(4)
        return lambda: f(x)

    prepare.__name__ = name
    prepare.__doc__ = text
    case(FAMILY, devices=(1,))(prepare)


_factored("cholesky_steps", "1000 steps with the Cholesky factor of 4 x 4 each.", lambda jax, jnp: jnp.linalg.cholesky)
_factored("lu_steps", "1000 steps with LU factors of 4 x 4 each.", lambda jax, jnp: lambda a: jax.lax.linalg.lu(a)[0])
_factored(
    "solve_steps", "1000 steps with 4 equations each.", lambda jax, jnp: lambda a: jnp.linalg.solve(a, a[:1].T) * a
)


@case(FAMILY, devices=(1,))
def while_mapped(jax, jnp, np):
    """A `while_loop` on 64 x 64 under `vmap`, whose four entries take 10 to 100 steps."""

    def steps(count, x):
        more = lambda state: state[0] < count  # noqa: E731
        return jax.lax.while_loop(more, lambda state: (state[0] + 1, jnp.tanh(state[1] @ x) + 0.1), (0, x))[1]

    f, counts, x = jax.jit(jax.vmap(steps)), jnp.array([100, 10, 40, 70]), jnp.asarray(0.1 * normal(np, 4, 64, 64))
    return lambda: f(counts, x)


@case(LARGE, devices=(1, 8))
def rounds(jax, jnp, np):
    """20 rounds of a polynomial on 4 MB, a `fori_loop`."""
    x = rows(jax, np, normal(np, 1024, 1024))
    f = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, x: 0.99 * x - 0.01 * x * x, x))
    return lambda: f(x)


@case(LARGE, devices=(1, 8))
def rows_apart(jax, jnp, np):
    """A `while_loop` under `vmap` over 64 rows of 4096, each of which takes 1 to 50 rounds of that."""

    def steps(x, count):
        more = lambda state: state[0] < count  # noqa: E731
        return jax.lax.while_loop(more, lambda s: (s[0] + 1, 0.99 * s[1] - 0.01 * s[1] * s[1]), (0, x))[1]

    x, counts = rows(jax, np, normal(np, 64, 4096)), rows(jax, np, np.linspace(1, 50, 64).astype(np.int32))
    f = jax.jit(jax.vmap(steps))
    return lambda: f(x, counts)


@case(LARGE, devices=(1, 8))
def mandelbrot_points(jax, jnp, np):
    """Mandelbrot's map on 65,536 points, a `while_loop` for each, under `vmap`."""

    def escape(a, b):
        def step(state):
            x, y, n = state
            return x * x - y * y + a, 2 * x * y + b, n + 1

        def more(state):
            x, y, n = state
            return (x * x + y * y < 4) & (n < 100)

        return jax.lax.while_loop(more, step, (0 * a, 0 * b, 0))[2]

    a, b = np.meshgrid(np.linspace(-2, 0.5, 256, dtype=np.float32), np.linspace(-1, 1, 256, dtype=np.float32))
    f, a, b = jax.jit(jax.vmap(escape)), rows(jax, np, a.ravel()), rows(jax, np, b.ravel())
    return lambda: f(a, b)


@case(LARGE, devices=(1, 8))
def complex_mandelbrot(jax, jnp, np):
    """20 rounds of Mandelbrot's map on 262,144 points in complex64, a `fori_loop`."""

    def counts(c):
        def step(i, state):
            z, n = state
            inside = jnp.abs(z) <= 2
            return jnp.where(inside, z * z + c, z), n + inside

        return jax.lax.fori_loop(0, 20, step, (jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int32)))[1]

    real, imaginary = np.meshgrid(np.linspace(-2, 0.5, 512), np.linspace(-1, 1, 512))
    f, c = jax.jit(counts), rows(jax, np, (real + 1j * imaginary).astype(np.complex64))
    return lambda: f(c)


@case(LARGE, devices=(1, 8))
def newton_fractal(jax, jnp, np):
    """20 rounds of Newton's method for z^3 = 1 on 65,536 points in complex64, a `fori_loop`."""
    real, imaginary = np.meshgrid(np.linspace(-2, 2, 256), np.linspace(-2, 2, 256))
    z = rows(jax, np, (real + 1j * imaginary).astype(np.complex64))
    f = jax.jit(lambda z: jax.lax.fori_loop(0, 20, lambda i, z: z - (z**3 - 1) / (3 * z**2), z))
    return lambda: f(z)


@case(FAMILY, devices=(1,))
def shortest_paths(jax, jnp, np):
    """Floyd and Warshall's shortest paths between 200 points, a `fori_loop`."""
    d = jnp.abs(jnp.asarray(normal(np, 200, 200)))
    f = jax.jit(lambda d: jax.lax.fori_loop(0, 200, lambda k, d: jnp.minimum(d, d[:, k, None] + d[k]), d))
    return lambda: f(d)


@case(FAMILY, devices=(1,))
def conjugate_gradients(jax, jnp, np):
    """50 steps of conjugate gradients for Poisson's equation on 128 x 128, a `scan`."""

    def solve(b):
        def step(state, _):
            x, r, p, size = state
            edge = jnp.pad(p, 1)
            q = 4 * p - edge[:-2, 1:-1] - edge[2:, 1:-1] - edge[1:-1, :-2] - edge[1:-1, 2:]
            far = size / jnp.vdot(p, q)
            x, r = x + far * p, r - far * q
            left = jnp.vdot(r, r)
            return (x, r, r + left / size * p, left), None

        return jax.lax.scan(step, (jnp.zeros_like(b), b, b, jnp.vdot(b, b)), None, length=50)[0][0]

    f, b = jax.jit(solve), jnp.asarray(normal(np, 128, 128))
    return lambda: f(b)


def _updates(jax, steps):
    def body(state):
        i, x = state
        return i + 1, x.at[i].set(i * 1.0)

    return lambda x: jax.lax.while_loop(lambda state: state[0] < steps, body, (0, x))[1]


@case(FAMILY, devices=(1,))
def while_updates(jax, jnp, np):
    """A `while_loop` that sets 10,000 of 40,000 elements, one per step."""
    f, x = jax.jit(_updates(jax, 10_000)), jnp.zeros(40_000)
    return lambda: f(x)


@case(FAMILY, devices=(1,))
def while_updates_mapped(jax, jnp, np):
    """The same under `vmap`, for 4 arrays."""
    f, x = jax.jit(jax.vmap(_updates(jax, 10_000))), jnp.zeros((4, 40_000))
    return lambda: f(x)


@case(FAMILY, devices=(1,))
def mirrored_borders(jax, jnp, np):
    """A small image, 32 x 32, in a mirrored border (`jnp.pad`)."""
    f, x = jax.jit(lambda x: jnp.pad(x, 2, mode="reflect")), jnp.asarray(normal(np, 32, 32))
    return lambda: f(x)


@case(FAMILY, devices=(1,))
def hashed_cells(jax, jnp, np):
    """Hashes of the eight corners around 4096 points, modulo the entries of a table, as encodings of neural fields have them."""

    def f(p):
        cell = jnp.floor(p * 16).astype(jnp.uint32)
        corners = [cell + jnp.array([i & 1, i >> 1 & 1, i >> 2], jnp.uint32) for i in range(8)]
        factors = jnp.array([1, 2654435761, 805459861], jnp.uint32)
        hashes = [c * factors for c in corners]
        return [(h[:, 0] ^ h[:, 1] ^ h[:, 2]) % jnp.uint32(1 << 14) for h in hashes]

    f, p = jax.jit(f), jnp.asarray(np.random.default_rng(0).random((4096, 3), np.float32))
    return lambda: f(p)
