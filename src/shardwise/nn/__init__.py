"""`shardwise.nn`: activations, normalisations, attention and initializers, named as in jax.nn.

In: arrays, NumPy arrays, scalars. Out: arrays that lie as their operands do; each function is one fused computation.
"""

import typing as _typing

from shardwise.base.doors import open_package as _open_package
from shardwise.nn.activations import celu as celu
from shardwise.nn.activations import elu as elu
from shardwise.nn.activations import gelu as gelu
from shardwise.nn.activations import glu as glu
from shardwise.nn.activations import hard_sigmoid as hard_sigmoid
from shardwise.nn.activations import hard_silu as hard_silu
from shardwise.nn.activations import hard_swish as hard_swish
from shardwise.nn.activations import hard_tanh as hard_tanh
from shardwise.nn.activations import identity as identity
from shardwise.nn.activations import leaky_relu as leaky_relu
from shardwise.nn.activations import log1mexp as log1mexp
from shardwise.nn.activations import log_sigmoid as log_sigmoid
from shardwise.nn.activations import mish as mish
from shardwise.nn.activations import relu as relu
from shardwise.nn.activations import relu6 as relu6
from shardwise.nn.activations import selu as selu
from shardwise.nn.activations import sigmoid as sigmoid
from shardwise.nn.activations import silu as silu
from shardwise.nn.activations import soft_sign as soft_sign
from shardwise.nn.activations import softplus as softplus
from shardwise.nn.activations import sparse_plus as sparse_plus
from shardwise.nn.activations import sparse_sigmoid as sparse_sigmoid
from shardwise.nn.activations import squareplus as squareplus
from shardwise.nn.activations import swish as swish
from shardwise.nn.activations import tanh as tanh
from shardwise.nn.normalization import log_softmax as log_softmax
from shardwise.nn.normalization import logmeanexp as logmeanexp
from shardwise.nn.normalization import logsumexp as logsumexp
from shardwise.nn.normalization import normalize as normalize
from shardwise.nn.normalization import one_hot as one_hot
from shardwise.nn.normalization import softmax as softmax
from shardwise.nn.normalization import standardize as standardize

if _typing.TYPE_CHECKING:
    from shardwise.nn import initializers as initializers
    from shardwise.nn.attention import dot_product_attention as dot_product_attention
    from shardwise.nn.scaled import get_scaled_dot_general_config as get_scaled_dot_general_config
    from shardwise.nn.scaled import scaled_dot_general as scaled_dot_general
    from shardwise.nn.scaled import scaled_matmul as scaled_matmul
else:  # many programs need activations alone, and initializers bring the random numbers
    __getattr__, __dir__ = _open_package(
        __name__,
        "initializers",
        attention="dot_product_attention",
        scaled="get_scaled_dot_general_config scaled_dot_general scaled_matmul",
    )
