"""Linear algebra on thousands of small matrices, under `vmap` or as stacks."""

from __future__ import annotations

from registry import case, normal, rows

FAMILY = "Many small matrices"
COUNT = 10_000


def _stack(name, text, n, make):
    def prepare(jax, jnp, np):
        a = normal(np, COUNT, n, n) + n * np.eye(n, dtype=np.float32)
        f, a = jax.jit(make(jax, jnp)), rows(jax, np, a)
        return lambda: f(a)

    prepare.__name__, prepare.__doc__ = name, text
    case(FAMILY, devices=(1, 8))(prepare)


def _symmetric(a):
    return a @ a.swapaxes(-1, -2)


_stack("stack_products", "Products of 10,000 pairs of 4 x 4.", 4, lambda jax, jnp: lambda a: a @ a)
_stack("stack_products_16", "Products of 10,000 pairs of 16 x 16.", 16, lambda jax, jnp: lambda a: a @ a)
_stack(
    "stack_eigh",
    "Eigenvectors of 10,000 symmetric ones of 2 x 2.",
    2,
    lambda jax, jnp: lambda a: jnp.linalg.eigh(_symmetric(a)),
)
_stack("stack_vectors", "10,000 matrices of 3 x 3 times vectors.", 3, lambda jax, jnp: lambda a: a @ a[:, :, :1])
_stack(
    "stack_vectors_16",
    "10,000 matrices of 16 x 16 times their first rows.",
    16,
    lambda jax, jnp: lambda a: jnp.einsum("bij,bj->bi", a, a[:, 0]),
)
_stack("stack_det", "Determinants of 10,000 of 3 x 3.", 3, lambda jax, jnp: jnp.linalg.det)
_stack("stack_slogdet", "The same as sign and logarithm, of 6 x 6.", 6, lambda jax, jnp: jnp.linalg.slogdet)
_stack("stack_inverse", "Inverses of 10,000 of 4 x 4.", 4, lambda jax, jnp: jnp.linalg.inv)
_stack("stack_solve", "10,000 systems of 3 equations.", 3, lambda jax, jnp: lambda a: jnp.linalg.solve(a, a[:, :, :1]))
_stack(
    "stack_cholesky",
    "Cholesky factors of 10,000 of 6 x 6.",
    6,
    lambda jax, jnp: lambda a: jnp.linalg.cholesky(_symmetric(a)),
)
_stack("stack_lu", "LU factors of 10,000 of 4 x 4.", 4, lambda jax, jnp: jax.scipy.linalg.lu_factor)
_stack("stack_qr", "QR factors of 10,000 of 4 x 4.", 4, lambda jax, jnp: jnp.linalg.qr)
_stack("stack_expm", "Exponentials of 10,000 of 3 x 3, `vmap`.", 3, lambda jax, jnp: jax.vmap(jax.scipy.linalg.expm))
