"""Dtypes and weak types of results of every public function for weakly typed arrays, beside JAX of both eras."""

from __future__ import annotations

import pytest

import shardwise as sw
from tests.calls.weak import answer, questions, recorded, recorded_slopes, slopes

SHARE = 7  # the default run asks one question in so many, always the same ones

# JAX types calls here that it cannot run, or that make no sense: complex numbers in an order, lists as matrices.
REFUSED = set(
    """
    jnp.argmax jnp.argmin jnp.nanargmax jnp.nanargmin jnp.bartlett jnp.blackman jnp.hamming jnp.hanning jnp.delete jnp.digitize
    jnp.frombuffer jnp.geomspace jnp.polyadd jnp.polysub jnp.unravel_index lax.clamp lax.cumlogsumexp lax.full_like lax.integer_pow
    lax.reshape linalg.matrix_rank linalg.outer linalg.pinv fft.fftfreq fft.ihfft special.boxcox special.boxcox1p special.log_ndtr
    special.multigammaln special.ndtr special.owens_t special.spence lax.shape_as_value slinalg.eigh slinalg.lu slinalg.lu_factor
    slinalg.qr slinalg.svd signal.welch norm.isf norm.logpdf norm.pdf norm.ppf
""".split()
)
OTHERWISE = {
    "lax.random_gamma_grad",  # strong in JAX 0.10 alone
    "special.owens_t",  # bfloat16 stays bfloat16
    "slinalg.fiedler_companion",  # of a scalar: nothing
}
AS_LATEST = {"jnp.floor_divide", "jnp.divmod", "jnp.logaddexp2"}  # in the seed dialect, too, for arrays with dims
# Functions whose slopes are weakly typed where JAX's are not, or the other way round: programs of other ops.
SLOPES_OTHERWISE = set(
    """
    jnp.diagflat jnp.median jnp.nan_to_num jnp.nanmedian jnp.poly jnp.prod
    jnp.reciprocal lax.DotDimensionNumbers lax.bessel_i1e lax.digamma lax.stack nn.gelu nn.sparse_plus
    nn.squareplus nn.standardize norm.isf norm.logcdf norm.logpdf norm.logsf norm.pdf signal.detrend signal.stft signal.welch
    slinalg.fiedler_companion slinalg.hankel slinalg.toeplitz special.digamma special.exp1 special.expi special.fresnel
    special.gamma special.i1e special.log_ndtr special.logit special.sici
""".split()
)


def differing(dialect: str, share: int) -> list[str]:
    known, found, asked = recorded(dialect), [], 0
    for count, (name, function, args) in enumerate(questions("shardwise")):
        where = name.partition(" ")[0]
        if count % share or name not in known or where in OTHERWISE | (AS_LATEST if dialect == "seed" else set()):
            continue
        asked += 1
        ours = answer(sw, function, args)
        if ours != known[name] and not (ours is None and where in REFUSED):
            found.append(f"{name} is {ours}, JAX's {known[name]}")
    assert asked > 5000 / share
    return found


def test_as_jax(dialect: str) -> None:
    assert differing(dialect, SHARE) == []


@pytest.mark.slow
def test_all_as_jax(dialect: str) -> None:
    assert differing(dialect, 1) == []


def differing_slopes(share: int) -> list[str]:
    known, found, asked = recorded_slopes(), [], 0
    for name, ours in slopes("shardwise", share):
        if name.partition(" ")[0] in SLOPES_OTHERWISE or name not in known or ours is None:
            continue
        asked += 1
        if ours != known[name]:
            found.append(f"{name} is {ours}, JAX's {known[name]}")
    assert asked > 800 / share
    return found


@pytest.mark.parametrize("dialect", ["latest"], indirect=True)
def test_slopes_as_jax(dialect: str) -> None:
    assert differing_slopes(3 * SHARE) == []


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["latest"], indirect=True)
def test_all_slopes_as_jax(dialect: str) -> None:
    assert differing_slopes(1) == []
