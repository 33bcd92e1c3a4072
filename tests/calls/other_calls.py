# ruff: noqa: E501  a function and its calls stand on one line
"""Calls of `jax.nn`, `jax.nn.initializers`, `jax.random` and `jax.scipy`; see `table` for how lines are read."""

NN = """
hard_sigmoid hard_silu hard_swish hard_tanh identity log_sigmoid mish relu relu6 selu sigmoid silu soft_sign softplus sparse_plus sparse_sigmoid swish tanh: (v); (n); (h); (2.5)
log1mexp: (p); (h)
celu elu: (v); (v, 0.5); (n, alpha=2.0)
log_softmax softmax: (v); (m, 0); (m, axis=(0, 1)); (m, where=m > 0); (n)
dot_product_attention: (q, q, q); (q, q, q, is_causal=True); (q, q, q, scale=0.5, mask=True); (q, q, q, q[:, :, 0, :2, None] * jnp.ones((1, 2, 2, 2)))
gelu: (v); (v, False); (n, approximate=True)
glu: (m[:, :2]); (m, axis=0)
leaky_relu: (v); (v, 0.1); (n, negative_slope=0.5)
logmeanexp: (v); (m, 0); (m, axis=1, keepdims=True, where=m > 0)
logsumexp: (v); (m, 0); (m, axis=1, b=m, keepdims=True, return_sign=True); (n); (m, where=m > 0); (c)
one_hot: (i, 3); (i, num_classes=4, dtype=jnp.int8); (n, 3, axis=0); (2, 3)
squareplus: (v); (v, 2.0); (n, b=1)
standardize: (m); (m, 0); (v, mean=a, variance=w[0], epsilon=1e-3); (m, where=m > 0); (m, algorithm="two-pass")
"""
NN_SKIPPED = {"scaled formats, which tests/nn calls": "get_scaled_dot_general_config scaled_dot_general scaled_matmul"}

# Initializers give functions of a key, a shape and a dtype; these are called.
INITIALIZERS = """
glorot_normal glorot_uniform he_normal he_uniform kaiming_normal kaiming_uniform lecun_normal lecun_uniform xavier_normal xavier_uniform: ()(k, (2, 3)); (in_axis=0, out_axis=1, dtype=jnp.float16)(k, (2, 3)); (0, 2, (1,))(k, (2, 2, 3), jnp.float32)
orthogonal: ()(k, (3, 2)); (2.0, 0)(k, (2, 2))
delta_orthogonal: ()(k, (2, 2, 3)); (scale=2.0)(k, (1, 2, 2))
ones zeros: (k, (2,)); (k, (2,), dtype=jnp.int32)
constant: (2.0)(k, (2,)); (v)(k, (2, 3)); (1, dtype=jnp.int32)(k, (2,))
normal: ()(k, (3,)); (0.5, dtype=jnp.float16)(k, (3,)); (stddev=2)(K, (2, 2), jnp.float32)
truncated_normal: ()(k, (3,)); (1.0, jnp.float32, -1.0, 1.0)(k, (3,)); (stddev=0.1, lower=0.0)(k, (3,))
uniform: ()(k, (3,)); (scale=2.0, dtype=jnp.float16)(k, (3,))
variance_scaling: (1.0, "fan_in", "normal")(k, (2, 3)); (2.0, mode="fan_avg", distribution="uniform", batch_axis=0)(k, (2, 2, 3)); (1.0, "fan_out", "truncated_normal")(k, (2, 3))
"""
INITIALIZERS_SKIPPED = {"a protocol": "Initializer"}

RANDOM = """
PRNGKey key: (0); (n[0]); (2**31 + 5); (seed=-1); (3, impl="threefry2x32"); (a)
split: (k); (K); (k, 3); (k, num=(2, 2)); (v)
fold_in: (k, 3); (K, data=n[0]); (k, i[0]); (k, 1.5)
key_data: (k); (K)
key_impl: (k); (K)
wrap_key_data: (K); (K, impl="threefry2x32")
clone: (k); (K)
key_dtype: (); ("rbg")
bits: (k); (k, (3,)); (k, shape=(2,), dtype=jnp.uint8); (K, (3,), jnp.uint16)
cauchy exponential laplace logistic maxwell normal gumbel uniform: (k); (K, (3,)); (k, shape=(2, 2), dtype=jnp.float16); (k, (3,), jnp.bfloat16); (k, 3)
normal: (k, (2,), jnp.complex64)
gumbel: (k, (3,), jnp.float32, "high")
uniform: (k, (3,), jnp.float32, -1.0, 1.0); (k, (3,), minval=v, maxval=2.0)
rademacher: (k); (k, (4,), jnp.int8); (k, shape=(3,), dtype=jnp.float32)
randint: (k, (3,), 0, 10); (k, (3,), i, 9); (k, shape=(4,), minval=-5, maxval=5, dtype=jnp.int8); (k, (3,), 0, 300, jnp.uint8); (k, (), v, 3)
bernoulli: (k); (k, p); (k, 0.3, (3,)); (k, p=0.3, shape=(4,), mode="high"); (k, n)
ball: (k, 2); (k, d=3, p=1.0, shape=(2,))
beta: (k, w, p); (k, 1.5, 2.5, (3,)); (k, a=w, b=2.0, dtype=jnp.float32)
binomial: (k, 10.0, p); (k, n=5, p=0.3, shape=(3,))
categorical: (k, v); (k, m, 0); (k, logits=m, axis=1, shape=(4, 2)); (k, v, shape=(2,), replace=False); (k, v, mode="high")
chisquare t: (k, w); (k, 2.5, (3,)); (k, df=w, dtype=jnp.float32)
choice: (k, 5); (k, v, (2,)); (k, a=m, shape=(2,), replace=False, axis=1); (k, v, (4,), True, p / p.sum()); (k, v, (2,), False, p=p / p.sum())
dirichlet: (k, w); (k, alpha=w, shape=(2,))
double_sided_maxwell: (k, 0.5, w[0]); (k, loc=v, scale=w, shape=(3,))
f: (k, w, w); (k, dfnum=2.0, dfden=3.0, shape=(3,))
gamma loggamma: (k, w); (k, 0.5, (3,)); (k, a=w, dtype=jnp.float32)
generalized_normal: (k, 2.0); (k, p=1.5, shape=(3,))
geometric: (k, p); (k, 0.3, (3,)); (k, p=0.5, dtype=jnp.int16)
lognormal: (k); (k, 0.5, (3,)); (k, sigma=w)
multinomial: (k, 10.0, p / p.sum()); (k, n=5.0, p=p / p.sum(), unroll=2)
multivariate_normal: (k, v, s.T @ s); (k, v, s.T @ s, (2,)); (k, mean=v, cov=s.T @ s, method="svd")
orthogonal: (k, 2); (k, n=3, shape=(2,)); (k, 3, m=2)
pareto: (k, w); (k, b=2.0, shape=(3,))
permutation: (k, 5); (k, m); (k, x=m, axis=1); (k, m, 1, True)
poisson: (k, w); (k, 3.5, (3,)); (k, lam=20.0, shape=(4,), dtype=jnp.int16)
rayleigh: (k, w); (k, scale=2.0, shape=(3,))
triangular: (k, 0.0, p, 1.0); (k, left=0.0, mode=0.5, right=2.0, shape=(3,))
truncated_normal: (k, -1.0, 1.0); (k, v, 2.0); (k, lower=-1.0, upper=1.0, shape=(3,), dtype=jnp.float32)
wald: (k, w); (k, mean=2.0, shape=(3,))
weibull_min: (k, w, 2.0); (k, scale=1.0, concentration=1.5, shape=(3,))
"""

SPECIAL = """
dawsn digamma erf erfc erfcx exp1 expi expit fresnel gamma gammaln gammasgn i0 i0e i1 i1e log_ndtr loggamma ndtr sici spence wofz: (w); (h); (0.5); (n)
entr erfinv logit ndtri: (p); (h / 4); (0.5)
beta betaln: (w, p); (2.0, w); (a=w, b=2)
betainc hyp1f1: (w, p, p); (a=1.5, b=2.0, x=p)
boxcox boxcox1p: (w, v); (w, lmbda=0.0)
expn: (2, w); (n=i, x=w)
polygamma: (1, w); (n=i, x=w)
gammainc gammaincc: (w, p); (a=2.0, x=w)
kl_div rel_entr: (w, p); (p=p, q=w)
log_softmax softmax: (m); (m, axis=0)
xlog1py xlogy: (v, w); (0, w); (x=v, y=2.0)
bernoulli: (4)
bessel_jn: (w, v=2); (a, v=1, n_iter=20)
comb: (5, 2); (w, 2.0); (N=5, k=i, repetition=True)
factorial: (i); (n=w); (4)
hyp2f1: (1.0, 2.0, 3.0, p / 4)
log_ndtr: (v, 4)
logsumexp: (v); (m, axis=0, keepdims=True); (v, b=w, return_sign=True); (m, where=m > 0)
multigammaln: (w + 3.0, 2); (a=w + 3.0, d=1)
owens_t: (v, w); (h=0.5, a=w)
poch: (w, p); (z=2.0, m=3.0)
sph_harm_y: (i, i, p, p); (i, i, p, p, n_max=3)
zeta: (w + 1.0, p); (x=3.0, q=w)
"""

SCIPY_LINALG = """
det inv: (s); (s, overwrite_a=True, check_finite=False)
lu_factor: (s); (s, overwrite_a=True)
companion fiedler: (w); (m)
fiedler_companion: (w); (n)
cho_factor cholesky: (s); (s, True); (s, lower=True)
hankel toeplitz: (v); (v, w); (c=n, r=i)
hilbert invhilbert pascal invpascal: (3)
pascal invpascal: (3, "lower")
block_diag: (m, v); (s, 2.0)
cho_solve: ((s, False), v); ((s, True), b=s)
circulant: (v); (c=n)
convolution_matrix: (v, 4); (v, n=2, mode="same")
dft: (3); (4, "sqrtn"); (n=2, scale="n")
eigh: (s); (s, eigvals_only=True); (s, lower=False)
eigh_tridiagonal: (v, w[:2], eigvals_only=True); (v, e=w[:2], eigvals_only=True, select="i", select_range=(0, 1))
expm: (s); (s, upper_triangular=True); (A=s, max_squarings=8)
expm_frechet: (s, s); (s, E=s, compute_expm=False)
funm: (s, jnp.sin, False)
hadamard: (4); (2, dtype=jnp.int32)
helmert: (3); (3, full=True)
hessenberg: (s); (s, calc_q=True)
leslie: (v, w[:2])
lu: (s); (m); (s, permute_l=True)
lu_solve: ((s, i), v); ((s, i), b=v, trans=1)
polar: (s); (m, side="left"); (s, method="svd")
qr: (m); (m, mode="r"); (m, mode="economic"); (s, pivoting=True)
qr_multiply: (s, s); (s, c=v, mode="left")
rsf2csf: (s, s)
schur: (s); (s, output="complex")
solve: (s, v); (s, s, lower=True, assume_a="pos"); (s, b=v, assume_a="sym")
solve_sylvester: (s, s, s)
solve_triangular: (s, v); (s, s, 1, True); (s, b=v, lower=True, unit_diagonal=True, trans="T")
sqrtm: (s)
svd: (m, False); (m, compute_uv=False)
"""

SCIPY = {
    "scipy.signal": """
convolve correlate fftconvolve: (v, p); (v, w, "same"); (m, m, mode="valid"); (n, i)
convolve2d correlate2d: (m, s[:2, :2]); (m, m, mode="same", boundary="wrap"); (m, m, "valid")
csd: (x, x, nperseg=4); (x, y=x, fs=2.0, nperseg=4, noverlap=1, detrend=False)
detrend: (x); (x, type="constant"); (m, axis=0, type="constant")
istft: (c[:, None] * jnp.ones((1, 3))); (c[:, None] * jnp.ones((1, 3)), fs=2.0, nperseg=4)
stft: (x, nperseg=4); (x, fs=2.0, nperseg=4, padded=False, boundary=None)
welch: (x, nperseg=4); (x, fs=2.0, nperseg=4, scaling="spectrum", average="median")
""",
    "scipy.fft": """
dct idct: (v); (m, 2, 4); (m, axis=0, norm="ortho")
dctn idctn: (m); (t, axes=(0, 1), norm="ortho")
""",
    "scipy.ndimage": 'map_coordinates: (m, [v, w], 1); (m, [v, w], order=0, mode="nearest"); (v, [w], 1, "wrap", 2.0)',
    "scipy.integrate": "trapezoid: (v); (m, w); (m, dx=0.5, axis=0)",
    "scipy.cluster.vq": "vq: (m, s); (m, s, check_finite=False)",
    "scipy.sparse.linalg": """
cg bicgstab gmres: (lambda x: 2.0 * x, v); (s.T @ s, v, tol=1e-3, maxiter=5); (lambda x: 2.0 * x, v, x0=w)
""",
    "scipy.stats": """
mode: (n); (m, axis=None); (n, axis=0, keepdims=True)
rankdata: (n); (m, axis=1); (n, method="min"); (v, method="dense")
sem: (m); (v, ddof=0); (m, axis=1, keepdims=True)
""",
}
SCIPY_SKIPPED = {
    "scipy.stats": {"a class, in tests/scipy": "gaussian_kde"},
    "scipy.interpolate": {"a class, in tests/scipy": "RegularGridInterpolator"},
    "scipy.spatial.transform": {"classes, in tests/scipy": "Rotation Slerp"},
    "scipy.optimize": {"searches, in tests/scipy": "minimize OptimizeResults"},
}

# Distributions: the parameters before loc and scale.
PARAMETERS = {
    "bernoulli": "0.3", "beta": "w, p", "betabinom": "4, w, p", "binom": "4, 0.3", "cauchy": "", "chi2": "w", "expon": "",
    "gamma": "w", "gennorm": "w", "geom": "0.3", "gumbel_l": "", "gumbel_r": "", "laplace": "", "logistic": "",
    "multinomial": "4, p / p.sum()", "nbinom": "4, 0.3", "norm": "", "pareto": "w", "poisson": "w", "t": "w",
    "truncnorm": "-1.0, 1.5", "uniform": "", "vonmises": "w", "wrapcauchy": "0.3",
}  # fmt: skip
OWN_ARGUMENTS = {
    "dirichlet": "(p / p.sum(), w); (x=p / p.sum(), alpha=w)",
    "multivariate_normal": "(v, w, s.T @ s); (x=v, mean=w, cov=s.T @ s)",
}


def distribution(name: str, functions: list[str]) -> str:
    """The lines of a distribution with these functions."""
    lines = []
    for function in functions:
        if name in OWN_ARGUMENTS:
            lines.append(f"{function}: {OWN_ARGUMENTS[name]}")
            continue
        first = "i" if function.endswith("pmf") or name == "poisson" else "p"
        if function == "entropy":
            lines.append(f"{function}: (w); (mu=w, loc=0)")
            continue
        rest = f", {PARAMETERS[name]}" if PARAMETERS[name] else ""
        located = (
            f"; ({first}{rest}, loc=0.25)"
            if name not in NO_LOCATION and function not in NO_LOCATION.get(name, ())
            else ""
        )
        lines.append(f"{function}: ({first}{rest}); (0.5{rest}); (h{rest}){located}")
    return "\n".join(lines)


NO_LOCATION: dict[str, tuple[str, ...]] = {
    "bernoulli": (),
    "gennorm": (),
    "multinomial": (),
    "vonmises": (),
    "wrapcauchy": (),
}
