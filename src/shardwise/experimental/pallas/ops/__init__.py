"""`shardwise.experimental.pallas.ops`: kernels that come with JAX, of which attention on TPUs is here.

In: arrays. Out: the values of the kernels' formulas, which plans for TPUs count as the kernels that they are there.
"""

from shardwise.base.refused import refuse_below as _refuse_below

_refuse_below(
    __name__,
    (
        "gpu",
        *(
            f"gpu.{kernel}"
            for kernel in "attention decode_attention layer_norm paged_attention rms_norm softmax".split()
        ),
    ),
)
