"""The primitives that `shardwise.lax.linalg` names, for checkers: at run time its `__getattr__` makes each from its op."""

from shardwise.transforms.programs.primitives import Primitive as _Primitive

cholesky_p: _Primitive
eig_p: _Primitive
eigh_p: _Primitive
hessenberg_p: _Primitive
householder_product_p: _Primitive
lu_p: _Primitive
lu_pivots_to_permutation_p: _Primitive
ormqr_p: _Primitive
qr_p: _Primitive
schur_p: _Primitive
svd_p: _Primitive
triangular_solve_p: _Primitive
tridiagonal_p: _Primitive
tridiagonal_solve_p: _Primitive
