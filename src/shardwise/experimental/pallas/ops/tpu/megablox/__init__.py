"""`megablox`: products of matrices in groups of rows, as mixtures of experts need them.

In: rows in groups, and a matrix for each group. Out: each row times the matrix of its group.
"""

from shardwise.base.refused import refuse_below as _refuse_below
from shardwise.experimental.pallas.ops.tpu.megablox.ops import gmm as gmm

_refuse_below(__name__, ("common",))
