"""`shardwise.experimental.sparse`: arrays as their nonzero elements and their places, `BCOO`, `BCSR`, `COO`, `CSR` and `CSC`.

In: a dense or a scipy.sparse array. Out: a tree of arrays, for jit, grad and vmap, with products, sums and the ways to lay it
out anew; of a `BCOO` also with batch and dense dims.
"""

from shardwise.base.listing import listing as _listing
from shardwise.experimental.sparse.bcoo import *  # noqa: F403
from shardwise.experimental.sparse.bcoo import __all__ as _bcoo_names
from shardwise.experimental.sparse.bcsr import BCSR as BCSR
from shardwise.experimental.sparse.bcsr import bcsr_broadcast_in_dim as bcsr_broadcast_in_dim
from shardwise.experimental.sparse.bcsr import bcsr_concatenate as bcsr_concatenate
from shardwise.experimental.sparse.bcsr import bcsr_dot_general as bcsr_dot_general
from shardwise.experimental.sparse.bcsr import bcsr_extract as bcsr_extract
from shardwise.experimental.sparse.bcsr import bcsr_fromdense as bcsr_fromdense
from shardwise.experimental.sparse.bcsr import bcsr_sum_duplicates as bcsr_sum_duplicates
from shardwise.experimental.sparse.bcsr import bcsr_todense as bcsr_todense
from shardwise.experimental.sparse.derivatives import grad as grad
from shardwise.experimental.sparse.derivatives import jacfwd as jacfwd
from shardwise.experimental.sparse.derivatives import jacobian as jacobian
from shardwise.experimental.sparse.derivatives import jacrev as jacrev
from shardwise.experimental.sparse.derivatives import value_and_grad as value_and_grad
from shardwise.experimental.sparse.formats import JAXSparse as JAXSparse
from shardwise.experimental.sparse.matrices import *  # noqa: F403
from shardwise.experimental.sparse.matrices import __all__ as _matrix_names
from shardwise.experimental.sparse.matrices import empty as empty
from shardwise.experimental.sparse.matrices import eye as eye
from shardwise.experimental.sparse.pieces import *  # noqa: F403
from shardwise.experimental.sparse.pieces import __all__ as _piece_names
from shardwise.experimental.sparse.products import *  # noqa: F403
from shardwise.experimental.sparse.products import __all__ as _product_names
from shardwise.experimental.sparse.sparsify import sparsify as sparsify

__all__ = [
    *_bcoo_names,
    *_matrix_names,
    *_piece_names,
    *_product_names,
    "BCSR",
    "JAXSparse",
    "bcsr_broadcast_in_dim",
    "bcsr_concatenate",
    "bcsr_dot_general",
    "bcsr_extract",
    "bcsr_fromdense",
    "bcsr_sum_duplicates",
    "bcsr_todense",
    "empty",
    "eye",
    "grad",
    "jacfwd",
    "jacobian",
    "jacrev",
    "sparsify",
    "value_and_grad",
]  # pyright: ignore[reportUnsupportedDunderAll]

__dir__ = _listing(__name__)
