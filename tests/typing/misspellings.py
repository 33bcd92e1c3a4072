"""41 misspelled names: checkers tell of each, and so does Python. `test_checkers.py` reads this file line by line."""

# fmt: off

import shardwise as jax
import shardwise.extend.core.primitives as primitives
import shardwise.numpy as jnp
from shardwise import lax, nn, random

x = jnp.ones((2, 3))

jax.jitt
jax.gard
jax.vamp
jax.device_putt
jax.make_meshh
jax.shard_mapp
jax.sharding.NamedShardin
jax.sharding.PartionSpec
jax.tree.mapp
jax.tree_util.tree_flaten
jax.scipy.special.logsumexpp
jax.scipy.stats.norm.pfd
jax.profiler.start_tracee
jax.experimental.mesh_util
jax.debug.prnt
jnp.summ
jnp.arrange
jnp.float23
jnp.concatenat
jnp.linalg.nrom
jnp.linalg.invv
jnp.fft.fftt
jnp.wher
jnp.zeros_lik
lax.psumm
lax.scann
lax.dot_genral
lax.fori_lop
lax.linalg.choleski
lax.addd_p
primitives.addd_p
nn.reluu
nn.soft_max
nn.initializers.glorot_norml
random.normall
random.PRNGkey
x.summ
x.shap
x.at[0].sett
x.astyp
x.shardings
