"""`shardwise.scipy.stats`: probability distributions, one module each, and a few statistics, named as in jax.scipy.stats.

Each function broadcasts its arguments to one floating dtype and shape. Submodules load when they are first used.
"""

import importlib as _importlib
from typing import Any as _Any

_SUBMODULES = (
    "bernoulli", "beta", "binom", "cauchy", "chi2", "dirichlet", "expon", "gamma", "geom", "laplace",
    "logistic", "multivariate_normal", "nbinom", "norm", "pareto", "poisson", "t", "uniform",
)  # fmt: skip


def __getattr__(name: str) -> _Any:
    if name in _SUBMODULES:
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES})
