"""Training steps that others measured and published: model, machine, how it was run, and the seconds.

Sources: `recipes` is AI-Hypercomputer/tpu-recipes (training/trillium, training/v5p, training/ironwood), `readme` is the README of
AI-Hypercomputer/maxtext at f12ba54a78a9, whose tables give TFLOP/s per device in place of seconds, `docs` the documentation of MaxText.
Configurations are those of MaxText's model files. Offloaded values count as saved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from planning.models import Decoder, Recipe


@dataclass(frozen=True)
class Step:
    """One published step.

    Attributes:
        name: model and machine.
        machine: as `shardwise plan --on` takes it.
        seconds: measured; or `tflops` per device.
        source: where it is published.
        note: in what the planned program differs from the one that ran.
    """

    name: str
    machine: str
    model: Decoder
    recipe: Recipe
    seconds: float = 0.0
    tflops: float = 0.0
    source: str = "recipes"
    note: str = ""

    @property
    def measured(self) -> float:
        """Seconds; where TFLOP/s are published those of MaxText's count of operations."""
        return self.seconds or maxtext_flops(self.model, self.recipe) / (self.tflops * 1e12)


def maxtext_flops(c: Decoder, r: Recipe) -> float:
    """Operations per device and step as MaxText counted them: dense products three times, attention without its mask."""
    tokens = r.batch * r.sequence
    mlp = (3 if c.gated else 2) * c.dim * c.hidden
    attention = c.dim * c.head_dim * 2 * (c.heads + c.kv_heads)
    weights = c.layers * (mlp + attention) + c.vocab * c.dim
    return 6 * tokens * weights + 12 * r.batch * r.sequence**2 * c.heads * c.head_dim * c.layers


def scaled(scale: int) -> Decoder:
    """MaxText's decoder of about `scale` billion parameters: powers of two go to heads and MLP, width and depth in turn."""
    third, rest = divmod(int(math.log2(scale)), 3)
    wide, long = 2 ** (third + (rest > 0)), 2 ** (third + (rest > 1))
    return Decoder(16 * 2**third, 2048 * long, 16 * wide, 16 * wide, 128, 7168 * wide, 32000)


LLAMA_8B = Decoder(32, 4096, 32, 8, 128, 14336, 128256)
LLAMA_70B = Decoder(80, 8192, 64, 8, 128, 28672, 128256)
LLAMA_405B = Decoder(126, 16384, 128, 8, 128, 53248, 128256)
GPT3_175B = Decoder(96, 12288, 96, 96, 128, 49152, 50304, gated=False, tied=True)
GEMMA3_12B = Decoder(48, 3840, 16, 8, 256, 15360, 262144, window=1024, local=6, tied=True)
MIXTRAL_8X22B = Decoder(56, 6144, 48, 8, 128, 16384, 32768, experts=8, chosen=2, capacity=1.25)
QWEN3_235B = Decoder(94, 4096, 64, 4, 128, 1536, 151936, experts=128, chosen=8)
GPT_OSS_120B = Decoder(36, 2880, 64, 8, 64, 2880, 201088, experts=128, chosen=4, window=128, local=2)
DEEPSEEK3 = Decoder(
    61, 7168, 128, 128, 192, 2048, 129280, experts=256, chosen=8, shared=2048, q_rank=1536, kv_rank=512, v_dim=128
)
DEEPSEEK2_16B = Decoder(27, 2048, 16, 16, 192, 1408, 102400, experts=64, chosen=6, shared=2816, kv_rank=512, v_dim=128)

LEFT_OUT = (
    "GPT-3 175B on 512 v5p and MaxText 1160B on 6144 v5p (their tables say nothing of mesh, batch or remat), Llama 4 Maverick, Gemma 4 "
    "(three sizes) and Flux (architectures that `planning.models` does not have)."
)
INPUT = ("decoder_layer_input",)
QKV = (*INPUT, "query_proj", "key_proj", "value_proj")
QKVO = (*QKV, "out_proj")
PRODUCTS = ("all products",)


def _offloaded(*args: Any, **kwargs: Any) -> Recipe:
    return Recipe(*args, offloads=True, **kwargs)


def _axes(fsdp: int, tensor: int = 1, data: int = 1, **others: int) -> dict[str, int]:
    return {"data": data, "fsdp": fsdp, **others, "tensor": tensor}


def _readme(
    scale: int, chip: str, slices: int, batch: float, fsdp: int, tensor: int, saved: tuple[str, ...], tflops: float
) -> Step:
    chips = fsdp * tensor
    machine = f"{chip}-{chips * (2 if chip == 'v5p' else 1)}"
    name = f"{slices}x-{machine}" if slices > 1 else machine
    recipe = Recipe(_axes(fsdp, tensor, slices), batch, 2048, saved, offloads=saved == QKV[1:])
    return Step(
        f"MaxText {scale}B on {slices * chips} {chip}", name, scaled(scale), recipe, tflops=tflops, source="readme"
    )


STEPS: tuple[Step, ...] = (
    Step("GPT-3 175B on 256 v6e", "v6e-256", GPT3_175B, Recipe(_axes(256), 3, 2048), 17.182),
    Step(
        "Gemma 3 12B on 512 v6e",
        "2x-v6e-256",
        GEMMA3_12B,
        Recipe(_axes(256, data=2), 1, 32768, INPUT, vocab_tiles=16),
        7.793,
    ),
    Step(
        "Gemma 3 12B on 1024 v6e",
        "4x-v6e-256",
        GEMMA3_12B,
        Recipe(_axes(256, data=4), 1, 32768, INPUT, vocab_tiles=16),
        8.39,
    ),
    Step("Llama 3.1 405B on 512 v6e", "2x-v6e-256", LLAMA_405B, _offloaded(_axes(512), 1, 8192, INPUT), 54.803),
    Step("Llama 3.1 70B on 256 v6e", "v6e-256", LLAMA_70B, _offloaded(_axes(256), 5, 8192, QKV), 42.656),
    Step("Llama 3.1 70B on 32 v6e", "v6e-32", LLAMA_70B, _offloaded(_axes(32), 2, 8192, QKV, "bfloat16"), 17.79),
    Step("Llama 3.1 8B on 16 v6e", "v6e-16", LLAMA_8B, _offloaded(_axes(16), 3, 8192, QKVO), 3.393),
    Step("Llama 3.1 8B on 256 v6e", "v6e-256", LLAMA_8B, _offloaded(_axes(256), 4, 8192, QKVO), 4.546),
    Step("Llama 3.1 8B on 32 v6e", "v6e-32", LLAMA_8B, _offloaded(_axes(32), 3, 8192, QKVO), 3.495),
    Step(
        "Mixtral 8x22B on 256 v6e",
        "v6e-256",
        MIXTRAL_8X22B,
        _offloaded(_axes(64, expert=4), 8, 4096, QKVO, "bfloat16"),
        24.706,
    ),
    Step(
        "DeepSeek 3 671B on 128 tpu7x",
        "tpu7x-4x4x8",
        DEEPSEEK3,
        _offloaded(_axes(256), 8, 4096, INPUT, moments="bfloat16"),
        27.02,
        note="all layers have experts; tokens spread evenly",
    ),
    Step(
        "DeepSeek 3 671B, fp8, on 128 tpu7x",
        "tpu7x-4x4x8",
        DEEPSEEK3,
        _offloaded(_axes(256), 8, 4096, INPUT, moments="bfloat16", narrow="float8_e4m3fn"),
        22.47,
        note="all layers have experts; tokens spread evenly",
    ),
    Step(
        "GPT-OSS 120B on 256 tpu7x",
        "tpu7x-4x8x8",
        GPT_OSS_120B,
        _offloaded(_axes(64, data=8), 10, 8192, (*INPUT, "mlpwo")),
        17.12,
        note="tokens spread evenly",
    ),
    Step(
        "Llama 3.1 405B, fp8, on 256 tpu7x",
        "tpu7x-4x8x8",
        LLAMA_405B,
        _offloaded(_axes(512), 3, 8192, INPUT, moments="bfloat16", narrow="float8_e4m3fn"),
        64.37,
    ),
    Step(
        "Llama 3.1 70B on 64 tpu7x",
        "tpu7x-4x4x4",
        LLAMA_70B,
        Recipe(_axes(128), 2, 8192, (*QKV, "context"), moments="bfloat16"),
        12.2,
    ),
    Step(
        "Llama 3.1 70B, fp8, on 256 tpu7x",
        "tpu7x-4x8x8",
        LLAMA_70B,
        Recipe(_axes(512), 2, 8192, (*QKV, "context"), moments="bfloat16", narrow="float8_e4m3fn"),
        7.95,
    ),
    Step(
        "Llama 3.1 70B, 131072 tokens, on 256 tpu7x",
        "tpu7x-4x8x8",
        LLAMA_70B,
        Recipe(_axes(64, context=8), 0.125, 131072, (*QKV, "context", "mlpwo"), vocab_tiles=4),
        34.02,
    ),
    Step(
        "Qwen 3 235B, fp8, on 256 tpu7x",
        "tpu7x-4x8x8",
        QWEN3_235B,
        _offloaded(_axes(512), 16, 4096, INPUT, narrow="float8_e4m3fn"),
        27.67,
        note="tokens spread evenly",
    ),
    _readme(32, "v5p", 1, 6, 16, 4, PRODUCTS, 328),
    _readme(64, "v5p", 1, 3, 16, 4, PRODUCTS, 323),
    _readme(128, "v5p", 1, 1, 32, 8, PRODUCTS, 315),
    _readme(1024, "v5p", 1, 2, 128, 16, (), 297),
    _readme(16, "v5e", 1, 6, 256, 1, (), 120),
    _readme(16, "v5e", 2, 6, 256, 1, (), 117),
    _readme(32, "v5e", 2, 4, 256, 1, (), 128),
    _readme(64, "v5e", 2, 2, 256, 1, (), 112),
    _readme(32, "v5e", 4, 4, 256, 1, (), 126),
    _readme(128, "v5e", 4, 1, 16, 16, QKV[1:], 108),
    _readme(16, "v5e", 8, 6, 256, 1, (), 115),
    _readme(64, "v5e", 8, 2, 256, 1, (), 108),
    _readme(128, "v5e", 16, 1, 16, 16, QKV[1:], 100),
    _readme(32, "v5e", 32, 4, 256, 1, (), 119),
    _readme(64, "v5e", 32, 2, 256, 1, (), 99),
    _readme(128, "v5e", 32, 1, 16, 16, QKV[1:], 91),
    Step(
        "DeepSeek 2 16B on 4 v5p",
        "v5p-8",
        DEEPSEEK2_16B,
        Recipe(_axes(4), 24, 2048),
        5.667,
        source="docs",
        note="all layers have experts; tokens spread evenly",
    ),
)
