"""`shardwise.experimental.pallas`: kernels for GPUs and TPUs, which cannot be written here.

Its names can be imported; its functions refuse when they are called.
"""

from shardwise.base.refused import refuse_below, refusing

__getattr__ = refusing(__name__)
refuse_below(
    __name__,
    (
        "fuser",
        "mosaic_gpu",
        "tpu",
        "tpu_sc",
        "triton",
        "ops",
        "ops.gpu",
        *(
            f"ops.gpu.{kernel}"
            for kernel in "attention decode_attention layer_norm paged_attention rms_norm softmax".split()
        ),
        "ops.tpu",
        *(f"ops.tpu.{kernel}" for kernel in "all_gather example_kernel flash_attention matmul random".split()),
        "ops.tpu.megablox",
        *(f"ops.tpu.megablox.{part}" for part in "common gmm ops".split()),
        "ops.tpu.paged_attention",
        *(f"ops.tpu.paged_attention.{part}" for part in "paged_attention_kernel quantization_utils util".split()),
        "ops.tpu.ragged_paged_attention",
        *(f"ops.tpu.ragged_paged_attention.{part}" for part in "kernel tuned_block_sizes".split()),
        "ops.tpu.splash_attention",
        *(f"ops.tpu.splash_attention.splash_attention_{part}" for part in "kernel mask mask_info".split()),
    ),
)
