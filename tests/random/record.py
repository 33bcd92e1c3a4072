"""What `test_samplers.py` compares with: samples, and their recording with JAX.

``python tests/random/record.py`` writes `samples.json` anew; it needs JAX 0.10.2, and a processor without AVX-512 FP16, with
which XLA rounds float16 otherwise.
"""

import json
from pathlib import Path

import numpy as np

RECORD = Path(__file__).parent / "samples.json"
P = np.linspace(0.3, 4, 7, dtype=np.float32)
TABLE = np.arange(24, dtype=np.float32).reshape(4, 6)
MANY = (9, 7)

# name, arguments after the key, keyword arguments, relative tolerance (0: equal)
CASES = [
    *[("bits", ((33,), dtype), {}, 0) for dtype in ("uint8", "uint16", "uint32")],
    *[
        ("uniform", ((33,), dtype, *bounds), {}, 0)
        for dtype in ("float32", "float16", "bfloat16", "float8_e5m2")
        for bounds in ((), (-1, 1), (0.3, 4.7), (2, -1))
    ],
    ("uniform", ((5, 7), "float32", P, np.full((5, 1), 5.3, np.float32)), {}, 0),
    *[
        ("randint", ((33,), *bounds, dtype), {}, 0)
        for dtype in ("int32", "uint32", "int16", "uint8")
        for bounds in ((0, 10), (0, 256), (-5, 7), (3, 3), (-(2**31), 2**31 - 1))
    ],
    ("bernoulli", (0.3, (33,)), {}, 0),
    ("bernoulli", (0.3, (33,)), {"mode": "high"}, 0),
    ("bernoulli", (np.linspace(0, 1, 11, dtype=np.float32),), {}, 0),
    ("rademacher", ((33,),), {}, 0),
    ("rademacher", ((33,), "float32"), {}, 0),
    ("permutation", (50,), {}, 0),
    *[("permutation", (TABLE,), {"axis": a, "independent": i}, 0) for a in (0, 1) for i in (False, True)],
    ("choice", (10, (3, 4)), {}, 0),
    ("choice", (TABLE, (3, 2)), {"axis": 1}, 0),
    ("choice", (10, (2, 3)), {"replace": False}, 0),
    ("choice", (TABLE, (3,)), {"replace": False, "axis": 1}, 0),
    ("choice", (4, (3,)), {"replace": False, "p": np.array([0.1, 0.2, 0.3, 0.4], np.float32)}, 0),
    ("choice", (TABLE, (5, 2)), {"axis": 0, "p": np.array([0.1, 0.2, 0.3, 0.4], np.float32)}, 0),
    ("categorical", (np.log(P),), {"shape": (40,)}, 0),
    ("categorical", (np.log(P.reshape(1, 7) * P[:, None]),), {"axis": 0, "shape": (5, 7)}, 0),
    ("categorical", (np.log(P),), {"shape": (5,), "replace": False}, 0),
    ("poisson", (np.array([0, 0.1, 1, 9.9, 10.1, 50, 1000], np.float32), MANY), {}, 0),
    ("binomial", (100.0, np.array([0.01, 0.2, 0.5, 0.7, 0.99, np.nan, -1], np.float32), MANY), {}, 0),
    ("multinomial", (np.array([5, 1000], np.float32), np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]], np.float32)), {}, 0),
    ("geometric", (np.linspace(0.1, 0.9, 7, dtype=np.float32), MANY), {}, 0),
    ("normal", (MANY,), {}, 1e-6),
    ("normal", (MANY, "complex64"), {}, 1e-6),
    ("normal", (MANY, "bfloat16"), {}, 1e-2),  # a unit of bfloat16
    ("truncated_normal", (-1.0, 2.0, MANY), {}, 1e-5),
    ("truncated_normal", (-P, P[:, None]), {}, 1e-5),
    ("lognormal", (0.7, MANY), {}, 2e-6),
    ("maxwell", (MANY,), {}, 1e-6),
    ("double_sided_maxwell", (1.0, 2.0, MANY), {}, 5e-6),
    ("wald", (P, MANY), {}, 5e-5),
    ("weibull_min", (2.0, 1.5, MANY), {}, 1e-6),
    ("weibull_min", (P, 1.5, (), "float16"), {}, 1e-6),
    ("exponential", (MANY,), {}, 1e-6),
    ("cauchy", (MANY,), {}, 1e-5),
    ("laplace", (MANY,), {}, 1e-6),
    ("logistic", (MANY,), {}, 1e-5),
    *[("gumbel", (MANY,), {"mode": mode}, 1e-5) for mode in ("low", "high", "highest")],
    ("pareto", (P, MANY), {}, 1e-5),
    ("rayleigh", (P, MANY), {}, 1e-6),
    ("triangular", (-P, 0.1 * P, P + 1, MANY), {}, 1e-6),
    ("gamma", (P, MANY), {}, 1e-5),
    ("loggamma", (P, MANY), {}, 1e-5),
    ("beta", (P, 2.0, MANY), {}, 1e-5),
    ("dirichlet", (P, (9,)), {}, 1e-5),
    ("chisquare", (P, MANY), {}, 1e-5),
    ("f", (P, P + 1), {}, 1e-5),
    ("t", (P, MANY), {}, 1e-5),
    ("generalized_normal", (1.5, MANY), {}, 1e-5),
    ("ball", (3, 1.5, MANY), {}, 1e-5),
    ("multivariate_normal", (P[:3], np.diag(P[:3]) + np.float32(0.1), (5,)), {}, 1e-5),
    ("orthogonal", (3, (4,)), {}, 1e-5),
    ("orthogonal", (2, (), "float32", 4), {}, 1e-5),
]


def case_id(case):
    """A case's name in the record."""
    name, args, kwargs, _ = case
    shown = [str(a.shape) if isinstance(a, np.ndarray) else str(a) for a in (*args, *kwargs.values())]
    return f"{name} {' '.join(shown)}".strip()


def plain(x):
    """An array as a flat list of numbers that JSON writes and reads back exactly; complex ones as real, imaginary."""
    x = np.asarray(x)
    if x.dtype.kind == "c":
        x = x.view(np.float32)
    elif x.dtype.kind not in "biuf" or x.dtype.itemsize < 4:
        x = x.astype(np.float32)
    return x.reshape(-1).tolist()


def drawn(jax, case):
    """A case's sample: dtype, shape and numbers."""
    name, args, kwargs, _ = case
    sample = np.asarray(getattr(jax.random, name)(jax.random.PRNGKey(7), *args, **kwargs))
    return [sample.dtype.name, list(sample.shape), plain(sample)]


def record():
    """Draw every case with JAX."""
    import jax

    record = {}
    for case in CASES:
        assert case_id(case) not in record
        record[case_id(case)] = drawn(jax, case)
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in record.items())
    RECORD.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    record()
