"""`splash_attention`: attention under masks that are known when the kernel is made, whose empty blocks a TPU leaves out.

In: a mask. Out: a kernel, which is a function of queries, keys and values.
"""

from shardwise.base.refused import refuse_below as _refuse_below
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import BlockSizes as BlockSizes
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import QKVLayout as QKVLayout
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import SegmentIds as SegmentIds
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import (
    make_masked_mha_reference as make_masked_mha_reference,
)
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import (
    make_masked_mqa_reference as make_masked_mqa_reference,
)
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import (
    make_splash_mha as make_splash_mha,
)
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import (
    make_splash_mha_single_device as make_splash_mha_single_device,
)
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import (
    make_splash_mqa as make_splash_mqa,
)
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import (
    make_splash_mqa_single_device as make_splash_mqa_single_device,
)
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import CausalMask as CausalMask
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import FullMask as FullMask
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import LocalMask as LocalMask
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import Mask as Mask
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import MultiHeadMask as MultiHeadMask
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import NumpyMask as NumpyMask
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import (
    make_causal_mask as make_causal_mask,
)
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import (
    make_local_attention_mask as make_local_attention_mask,
)
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import (
    make_random_mask as make_random_mask,
)

_refuse_below(__name__, ("splash_attention_mask_info",))
