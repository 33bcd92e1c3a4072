"""`shardwise.scipy.stats`: probability distributions, one module each, and a few statistics, named as in jax.scipy.stats.

Each distribution's functions broadcast their arguments to one floating dtype and shape. Submodules load when first used.
"""

import typing as _typing

from shardwise.base.doors import open_package as _open_package

if _typing.TYPE_CHECKING:  # names that `__getattr__` imports
    from shardwise.scipy.stats import bernoulli as bernoulli
    from shardwise.scipy.stats import beta as beta
    from shardwise.scipy.stats import betabinom as betabinom
    from shardwise.scipy.stats import binom as binom
    from shardwise.scipy.stats import cauchy as cauchy
    from shardwise.scipy.stats import chi2 as chi2
    from shardwise.scipy.stats import dirichlet as dirichlet
    from shardwise.scipy.stats import expon as expon
    from shardwise.scipy.stats import gamma as gamma
    from shardwise.scipy.stats import gennorm as gennorm
    from shardwise.scipy.stats import geom as geom
    from shardwise.scipy.stats import gumbel_l as gumbel_l
    from shardwise.scipy.stats import gumbel_r as gumbel_r
    from shardwise.scipy.stats import laplace as laplace
    from shardwise.scipy.stats import logistic as logistic
    from shardwise.scipy.stats import multinomial as multinomial
    from shardwise.scipy.stats import multivariate_normal as multivariate_normal
    from shardwise.scipy.stats import nbinom as nbinom
    from shardwise.scipy.stats import norm as norm
    from shardwise.scipy.stats import pareto as pareto
    from shardwise.scipy.stats import poisson as poisson
    from shardwise.scipy.stats import t as t
    from shardwise.scipy.stats import truncnorm as truncnorm
    from shardwise.scipy.stats import uniform as uniform
    from shardwise.scipy.stats import vonmises as vonmises
    from shardwise.scipy.stats import wrapcauchy as wrapcauchy
    from shardwise.scipy.stats.kde import gaussian_kde as gaussian_kde
    from shardwise.scipy.stats.summaries import mode as mode
    from shardwise.scipy.stats.summaries import rankdata as rankdata
    from shardwise.scipy.stats.summaries import sem as sem
else:
    __getattr__, __dir__ = _open_package(
        __name__,
        "bernoulli beta betabinom binom cauchy chi2 dirichlet expon gamma gennorm geom gumbel_l gumbel_r laplace logistic multinomial "
        "multivariate_normal nbinom norm pareto poisson t truncnorm uniform vonmises wrapcauchy",
        kde="gaussian_kde",
        summaries="mode rankdata sem",
    )
