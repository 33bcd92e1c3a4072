"""`shardwise.scipy.stats`: probability distributions, one module each, and a few statistics, named as in jax.scipy.stats.

Each distribution's functions broadcast their arguments to one floating dtype and shape. Submodules load when first used.
"""

import importlib as _importlib
from typing import Any as _Any

_SUBMODULES = (
    "bernoulli", "beta", "betabinom", "binom", "cauchy", "chi2", "dirichlet", "expon", "gamma", "gennorm", "geom",
    "gumbel_l", "gumbel_r", "laplace", "logistic", "multinomial", "multivariate_normal", "nbinom", "norm", "pareto",
    "poisson", "t", "truncnorm", "uniform", "vonmises", "wrapcauchy",
)  # fmt: skip
_NAMES = {"gaussian_kde": "kde", "mode": "summaries", "rankdata": "summaries", "sem": "summaries"}


def __getattr__(name: str) -> _Any:
    if name in _SUBMODULES:
        return _importlib.import_module(f"{__name__}.{name}")
    if name in _NAMES:
        return getattr(_importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES, *_NAMES})
