"""`shardwise.experimental.sparse`: arrays as their nonzero elements and their places, `BCOO`, `BCSR`, `COO`, `CSR` and `CSC`.

In: a dense or a scipy.sparse array. Out: a tree of arrays, for jit, grad and vmap, with products, sums and the ways to lay it
out anew; of a `BCOO` also with batch and dense dims.
"""

from shardwise.base.listing import listing as _listing
from shardwise.experimental.sparse.bcoo import *  # noqa: F403
from shardwise.experimental.sparse.bcoo import __all__ as _bcoo_names
from shardwise.experimental.sparse.bcsr import BCSR as BCSR
from shardwise.experimental.sparse.bcsr import bcsr_fromdense as bcsr_fromdense
from shardwise.experimental.sparse.bcsr import bcsr_todense as bcsr_todense
from shardwise.experimental.sparse.derivatives import grad as grad
from shardwise.experimental.sparse.derivatives import value_and_grad as value_and_grad
from shardwise.experimental.sparse.formats import JAXSparse as JAXSparse
from shardwise.experimental.sparse.matrices import *  # noqa: F403
from shardwise.experimental.sparse.matrices import __all__ as _matrix_names
from shardwise.experimental.sparse.matrices import empty as empty
from shardwise.experimental.sparse.matrices import eye as eye
from shardwise.experimental.sparse.sparsify import sparsify as sparsify

__all__ = [
    *_bcoo_names,
    *_matrix_names,
    "BCSR",
    "JAXSparse",
    "bcsr_fromdense",
    "bcsr_todense",
    "empty",
    "eye",
    "grad",
    "sparsify",
    "value_and_grad",
]  # pyright: ignore[reportUnsupportedDunderAll]

__dir__ = _listing(__name__)
