"""`shardwise.experimental.pallas.ops.tpu`: `flash_attention`, `splash_attention` and `megablox`; the names of other kernels refuse."""

from shardwise.base.refused import refuse_below as _refuse_below

_refuse_below(
    __name__,
    (
        *"all_gather example_kernel matmul random".split(),
        "paged_attention",
        *(f"paged_attention.{part}" for part in "paged_attention_kernel quantization_utils util".split()),
        "ragged_paged_attention",
        *(f"ragged_paged_attention.{part}" for part in "kernel tuned_block_sizes".split()),
    ),
)
