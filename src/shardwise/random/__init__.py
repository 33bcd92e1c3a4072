"""Random numbers, named as in jax.random and bit-equal to JAX's on any mesh.

In: a key and a shape. Out: the same sample however the result is sharded, every device making its own part.
"""

from shardwise.base.listing import listing as _listing
from shardwise.random.continuous import cauchy as cauchy
from shardwise.random.continuous import exponential as exponential
from shardwise.random.continuous import gumbel as gumbel
from shardwise.random.continuous import laplace as laplace
from shardwise.random.continuous import logistic as logistic
from shardwise.random.continuous import pareto as pareto
from shardwise.random.continuous import rayleigh as rayleigh
from shardwise.random.continuous import triangular as triangular
from shardwise.random.counts import binomial as binomial
from shardwise.random.counts import geometric as geometric
from shardwise.random.counts import multinomial as multinomial
from shardwise.random.counts import poisson as poisson
from shardwise.random.gamma import ball as ball
from shardwise.random.gamma import beta as beta
from shardwise.random.gamma import chisquare as chisquare
from shardwise.random.gamma import dirichlet as dirichlet
from shardwise.random.gamma import f as f
from shardwise.random.gamma import gamma as gamma
from shardwise.random.gamma import generalized_normal as generalized_normal
from shardwise.random.gamma import loggamma as loggamma
from shardwise.random.gamma import t as t
from shardwise.random.keys import PRNGKey as PRNGKey
from shardwise.random.keys import PRNGSpec as PRNGSpec
from shardwise.random.keys import clone as clone
from shardwise.random.keys import default_prng_impl as default_prng_impl
from shardwise.random.keys import fold_in as fold_in
from shardwise.random.keys import key as key
from shardwise.random.keys import key_data as key_data
from shardwise.random.keys import key_dtype as key_dtype
from shardwise.random.keys import key_impl as key_impl
from shardwise.random.keys import resolve_prng_impl as resolve_prng_impl
from shardwise.random.keys import split as split
from shardwise.random.keys import wrap_key_data as wrap_key_data
from shardwise.random.matrix import multivariate_normal as multivariate_normal
from shardwise.random.matrix import orthogonal as orthogonal
from shardwise.random.normal import double_sided_maxwell as double_sided_maxwell
from shardwise.random.normal import lognormal as lognormal
from shardwise.random.normal import maxwell as maxwell
from shardwise.random.normal import normal as normal
from shardwise.random.normal import truncated_normal as truncated_normal
from shardwise.random.normal import wald as wald
from shardwise.random.normal import weibull_min as weibull_min
from shardwise.random.permute import categorical as categorical
from shardwise.random.permute import choice as choice
from shardwise.random.permute import permutation as permutation
from shardwise.random.uniform import bernoulli as bernoulli
from shardwise.random.uniform import bits as bits
from shardwise.random.uniform import rademacher as rademacher
from shardwise.random.uniform import randint as randint
from shardwise.random.uniform import uniform as uniform

__dir__ = _listing(__name__)
