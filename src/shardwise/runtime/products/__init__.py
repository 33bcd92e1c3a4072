"""Matrix products: on our own BLAS, on the matrix unit, in panels with what follows them.

Besides these names it offers the modules `amx`, `blas` and `panels`.
"""

from typing import TYPE_CHECKING

from shardwise.base.doors import open_door

if TYPE_CHECKING:
    from shardwise.runtime.products.contraction import DotDims as DotDims
    from shardwise.runtime.products.contraction import contract as contract
    from shardwise.runtime.products.contraction import gemm_plan as gemm_plan
    from shardwise.runtime.products.contraction import gemm_runner as gemm_runner
    from shardwise.runtime.products.contraction import small_product as small_product
    from shardwise.runtime.products.epilogue import epilogue_p as epilogue_p
    from shardwise.runtime.products.product import expect as expect
    from shardwise.runtime.products.product import matmul as matmul
    from shardwise.runtime.products.product import product_threads as product_threads
    from shardwise.runtime.products.product import threads_for as threads_for

__getattr__ = open_door(
    __name__,
    contraction="DotDims contract gemm_plan gemm_runner small_product",
    epilogue="epilogue_p",
    product="expect matmul product_threads threads_for",
)
