"""Numerical programs: stencils, spectral and multigrid solvers, factorizations by blocks, statistics."""

from __future__ import annotations

from typing import Any

from tests.traffic.table import program


@program(x=4, y=2)
def life(e: Any) -> Any:
    """Eight neighbours, corners too, on a torus."""

    def f(u: Any) -> Any:
        def step(_: Any, u: Any) -> Any:
            near = sum(e.jnp.roll(u, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
            return ((near == 3) | ((u == 1) & (near == 2))).astype("int32")

        return e.lax.fori_loop(0, 4, step, u)

    return f, (e.arg((128, 128), "x", "y", dtype="int32"),), e.at("x", "y")


@program(x=4, y=2)
def nine_points_with_borders(e: Any) -> Any:
    """A padded stencil with corners by slices."""

    def f(u: Any) -> Any:
        p = e.jnp.pad(u, 1)
        cut = lambda i, j: p[i : i + 128, j : j + 128]  # noqa: E731
        sides = cut(0, 1) + cut(2, 1) + cut(1, 0) + cut(1, 2)
        corners = cut(0, 0) + cut(0, 2) + cut(2, 0) + cut(2, 2)
        return u + 0.1 * (4 * sides + corners - 20 * u)

    return f, (e.arg((128, 128), "x", "y"),), e.at("x", "y")


@program(x=2, y=2, z=2)
def stencil_of_a_volume(e: Any) -> Any:
    """Seven points of a volume split along three dims, in a scan."""

    def f(u: Any) -> Any:
        def step(u: Any, _: Any) -> Any:
            near = sum(e.jnp.roll(u, s, d) for s in (1, -1) for d in range(3))
            return u + 0.1 * (near - 6 * u), (u**2).sum()

        return e.lax.scan(step, u, None, length=5)

    u = e.arg((32, 32, 32), "x", "y", "z")
    return f, (u,), (u.sharding, e.at())


@program(x=2, y=2, z=2)
def volume_with_edges(e: Any) -> Any:
    """Twenty-seven points of a padded volume, as a window's sum and a maximum."""

    def f(u: Any) -> Any:
        w, one = (3, 3, 3), (1, 1, 1)
        return e.lax.reduce_window(u, 0.0, e.lax.add, w, one, "SAME"), e.lax.reduce_window(
            u, -e.jnp.inf, e.lax.max, w, one, "SAME"
        )

    u = e.arg((32, 32, 32), "x", "y", "z")
    return f, (u,), (u.sharding, u.sharding)


@program(x=8)
def derivatives_of_fourth_order(e: Any) -> Any:
    """Five-point differences by rolls, a Runge-Kutta step of Burgers' equation."""

    def f(u: Any) -> Any:
        roll = e.jnp.roll
        d1 = lambda u: (8 * (roll(u, -1) - roll(u, 1)) - (roll(u, -2) - roll(u, 2))) / 12  # noqa: E731
        d2 = lambda u: roll(u, -1) - 2 * u + roll(u, 1)  # noqa: E731
        rate = lambda u: 0.1 * d2(u) - u * d1(u)  # noqa: E731
        a = rate(u)
        b = rate(u + 0.05 * a)
        c = rate(u + 0.05 * b)
        return u + 0.1 / 6 * (a + 2 * b + 2 * c + rate(u + 0.1 * c))

    return f, (e.arg((4096,), "x"),), e.at("x")


@program(x=8)
def staggered_grid(e: Any) -> Any:
    """Fields at points and between them: differences of unequal lengths, borders fixed."""

    def f(p: Any, u: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            p, u = state
            u = u.at[1:-1].add(-0.1 * (p[1:] - p[:-1]))
            return p - 0.1 * (u[1:] - u[:-1]), u

        return e.lax.fori_loop(0, 4, step, (p, u))[0]

    return f, (e.arg((4096,), "x"), e.arg((4097,))), e.at("x")


@program(x=8)
def gradient_and_trapezoid(e: Any) -> Any:
    """Centered differences with one-sided ends, an integral and a running one."""

    def f(y: Any) -> Any:
        g = e.jnp.gradient(y)
        running = e.jnp.cumsum((y[1:] + y[:-1]) / 2)
        return g, e.jnp.trapezoid(y), running[-1]

    return f, (e.arg((4096,), "x"),), (e.at("x"), e.at(), e.at())


@program(x=4, y=2)
def multigrid_cycle(e: Any) -> Any:
    """Smoothing, restriction, a coarser level, prolongation."""

    def f(u: Any, b: Any) -> Any:
        jnp = e.jnp

        def lap(u: Any) -> Any:
            return sum(jnp.roll(u, s, d) for s in (1, -1) for d in (0, 1)) - 4 * u

        def cycle(u: Any, b: Any, level: int) -> Any:
            for _ in range(2):
                u = u + 0.2 * (lap(u) - b)
            if level:
                r = lap(u) - b
                n, m = r.shape
                small = r.reshape(n // 2, 2, m // 2, 2).mean((1, 3))
                fix = cycle(jnp.zeros_like(small), -4 * small, level - 1)
                u = u + jnp.repeat(jnp.repeat(fix, 2, 0), 2, 1)
            return u + 0.2 * (lap(u) - b)

        return cycle(u, b, 2)

    u = e.arg((128, 128), "x", "y")
    return f, (u, u), u.sharding


@program(x=8)
def spectral_step(e: Any) -> Any:
    """Vorticity by real transforms of split rows, a dealiased product, an integrating factor."""

    def f(w: Any) -> Any:
        jnp = e.jnp
        kx, ky = jnp.fft.fftfreq(128)[:, None] * 128, jnp.fft.rfftfreq(128)[None] * 128
        k2 = kx**2 + ky**2
        hat = jnp.fft.rfft2(w)
        psi = hat / jnp.where(k2 == 0, 1, k2)
        u, v = jnp.fft.irfft2(1j * ky * psi), jnp.fft.irfft2(-1j * kx * psi)
        wx, wy = jnp.fft.irfft2(1j * kx * hat), jnp.fft.irfft2(1j * ky * hat)
        rate = jnp.fft.rfft2(u * wx + v * wy) * (k2 < 1700)
        return jnp.fft.irfft2((hat - 0.01 * rate) * jnp.exp(-1e-4 * k2))

    return f, (e.arg((128, 128), "x"),), e.at("x")


@program(x=8)
def convolution_by_transforms(e: Any) -> Any:
    """A long line convolved with a kernel by products of its transform."""

    def f(x: Any, k: Any) -> Any:
        return e.jnp.fft.irfft(e.jnp.fft.rfft(x) * e.jnp.fft.rfft(k), n=65536)

    return f, (e.arg((65536,), "x"), e.arg((65536,), "x")), e.at("x")


@program(x=4, y=2)
def transform_of_a_volume(e: Any) -> Any:
    """A three-dimensional transform in pencils, a filter and its inverse."""

    def f(u: Any) -> Any:
        hat = e.jnp.fft.fftn(u)
        k = e.jnp.fft.fftfreq(32)
        low = (k[:, None, None] ** 2 + k[:, None] ** 2 + k**2) < 0.1
        return e.jnp.fft.ifftn(hat * low).real

    return f, (e.arg((32, 32, 32), "x", "y"),), e.at("x", "y")


@program(x=8)
def cholesky_by_blocks(e: Any) -> Any:
    """A matrix split by columns, factored in panels."""

    def f(a: Any) -> Any:
        jnp = e.jnp
        for k in range(0, 256, 64):
            top = jnp.linalg.cholesky(a[k : k + 64, k : k + 64])
            below = e.lax.linalg.triangular_solve(top, a[k + 64 :, k : k + 64], lower=True, transpose_a=True)
            a = a.at[k : k + 64, k : k + 64].set(top)
            a = a.at[k + 64 :, k : k + 64].set(below)
            a = a.at[k + 64 :, k + 64 :].add(-below @ below.T)
        return jnp.tril(a)

    def g(b: Any) -> Any:
        return f(b @ b.T / 256 + 2 * e.jnp.eye(256))

    return g, (e.arg((256, 256), None, "x"),), e.at(None, "x")


@program(x=8)
def elimination_by_rows(e: Any) -> Any:
    """LU without pivots in a loop over rows, the matrix split by rows."""

    def f(a: Any) -> Any:
        jnp = e.jnp
        a = a @ a.T / 64 + 4 * jnp.eye(64)
        rows = jnp.arange(64)

        def step(k: Any, a: Any) -> Any:
            factor = jnp.where(rows > k, a[:, k] / a[k, k], 0)
            return a - factor[:, None] * a[k] * (rows >= k) + jnp.where(rows == k, factor[:, None], 0)

        return e.lax.fori_loop(0, 63, step, a)

    return f, (e.arg((64, 64), "x"),), e.at("x")


@program(x=4, y=2)
def randomized_range(e: Any) -> Any:
    """A sketch, its orthonormal basis by a Cholesky factor, the small product's values."""

    def f(a: Any, omega: Any) -> Any:
        y = a @ omega
        r = e.jnp.linalg.cholesky(y.T @ y + 1e-3 * e.jnp.eye(16))
        q = e.lax.linalg.triangular_solve(r, y, lower=True, transpose_a=True)
        b = q.T @ a
        return q, e.jnp.linalg.eigvalsh(b @ b.T)

    return f, (e.arg((2048, 256), "x", "y"), e.arg((256, 16), "y")), (e.at("x"), e.at())


@program(x=8)
def least_squares_by_qr(e: Any) -> Any:
    """A tall split matrix factored, a triangular solve."""

    def f(a: Any, b: Any) -> Any:
        q, r = e.jnp.linalg.qr(a)
        return e.jax.scipy.linalg.solve_triangular(r, q.T @ b)

    return f, (e.arg((4096, 16), "x"), e.arg((4096,), "x")), e.at()


@program(x=8)
def lanczos(e: Any) -> Any:
    """A basis kept as rows of a split array, orthogonalized again in each step."""

    def f(a: Any, v: Any) -> Any:
        jnp = e.jnp

        def step(i: Any, state: Any) -> Any:
            basis, v = state
            basis = basis.at[i].set(v)
            w = a @ v
            w = w - basis.T @ (basis @ w)
            return basis, w / jnp.linalg.norm(w)

        return e.lax.fori_loop(0, 8, step, (jnp.zeros((8, 512)), v / jnp.linalg.norm(v)))[0]

    return f, (e.arg((512, 512), "x"), e.arg((512,), "x")), e.at(None, "x")


@program(x=8)
def kernel_regression(e: Any) -> Any:
    """A Gaussian kernel between split points, solved by conjugate gradients."""

    def f(x: Any, y: Any) -> Any:
        k = e.jnp.exp(-((x[:, None] - x) ** 2).sum(-1)) + 0.1 * e.jnp.eye(256)
        return e.jax.scipy.sparse.linalg.cg(k, y, maxiter=4)[0]

    return f, (e.arg((256, 4), "x"), e.arg((256,), "x")), e.at("x")


@program(x=4, y=2)
def alternating_directions(e: Any) -> Any:
    """Tridiagonal solves along rows, then along columns, of a grid split both ways."""

    def f(u: Any) -> Any:
        def solve(u: Any) -> Any:
            def down(c: Any, d: Any) -> Any:
                cp, dp = c
                m = 2.5 + cp
                c = -1 / m, (d + dp) / m
                return c, c

            start = e.jnp.zeros(64), e.jnp.zeros(64)
            _, (cs, ds) = e.lax.scan(down, start, u)
            back = lambda x, cd: (cd[1] - cd[0] * x,) * 2  # noqa: E731
            return e.lax.scan(back, e.jnp.zeros(64), (cs, ds), reverse=True)[1]

        return solve(solve(u).T).T

    u = e.arg((64, 64), "x", "y")
    return f, (u,), u.sharding


@program(x=4)
def uneven_rows(e: Any) -> Any:
    """Seven rows of blocks over four devices: sizes that the axis does not divide."""

    def f(u: Any, w: Any) -> Any:
        h = e.jnp.tanh(e.pin(u[:7], "x") @ w)
        return ((h - h.mean(0)) ** 2).sum(), e.jnp.roll(h, 1, 0)

    return f, (e.arg((8, 64), "x"), e.arg((64, 64))), (e.at(), e.at())


@program(x=8)
def uneven_windows(e: Any) -> Any:
    """Overlapping frames of a line by slices, a window function and their power."""

    def f(x: Any) -> Any:
        frames = e.jnp.stack([x[:-96].reshape(-1, 32), x[32:-64].reshape(-1, 32), x[64:-32].reshape(-1, 32)], 1)
        frames = frames.reshape(-1, 96) * e.jnp.hanning(96)
        return e.jnp.abs(e.jnp.fft.rfft(frames)) ** 2

    return f, (e.arg((4192,)),), None


@program(x=8)
def smoothing_by_convolution(e: Any) -> Any:
    """A long line with a wide kernel, centered, and its residual's norm."""

    def f(x: Any, k: Any) -> Any:
        smooth = e.jnp.convolve(x, k, mode="same")
        return smooth, ((x - smooth) ** 2).sum()

    return f, (e.arg((8192,), "x"), e.arg((65,))), (e.at("x"), e.at())


@program(x=8)
def running_statistics(e: Any) -> Any:
    """Means of a moving window by running sums, the products of growth, drawdowns."""

    def f(r: Any) -> Any:
        jnp = e.jnp
        total = jnp.cumsum(r, 0)
        mean = (total[16:] - total[:-16]) / 16
        wealth = jnp.cumprod(1 + 0.01 * r, 0)
        return (mean**2).sum(0), (wealth / e.lax.cummax(wealth, axis=0)).min(0)

    return f, (e.arg((4096, 4), "x"),), (e.at(), e.at())


@program(x=8)
def covariance_and_correlation(e: Any) -> Any:
    """Columns of split rows against each other."""

    def f(x: Any) -> Any:
        return e.jnp.cov(x, rowvar=False), e.jnp.corrcoef(x, rowvar=False)

    return f, (e.arg((4096, 16), "x"),), (e.at(), e.at())


@program(x=8)
def ensemble_filter(e: Any) -> Any:
    """Members split, their covariance with observations, a small solve."""

    def f(members: Any, y: Any, noise: Any) -> Any:
        obs = members[:, :8]
        dx, dy = members - members.mean(0), obs - obs.mean(0)
        gain = e.jnp.linalg.solve(dy.T @ dy / 63 + e.jnp.eye(8), dy.T @ dx / 63)
        return members + (y + noise - obs) @ gain

    return f, (e.arg((64, 128), "x"), e.arg((8,)), e.arg((64, 8), "x")), e.at("x")


@program(explicit=True, x=8)
def transform_explicit(e: Any) -> Any:
    """A transform along rows, then along columns, resharded between them as the types ask."""

    def f(u: Any) -> Any:
        hat = e.jnp.fft.fft(u, axis=1)
        hat = e.jnp.fft.fft(e.jax.sharding.reshard(hat, e.P(None, "x")), axis=0)
        return e.jnp.abs(hat) ** 2

    return f, (e.arg((128, 128), "x", None),), None
