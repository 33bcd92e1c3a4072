"""What programs give on other processors: the same table is computed with instructions hidden, and compared.

What this processor lacks cannot run here; for it, the code that would run is looked at.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import random
from shardwise.base import config
from shardwise.runtime.machine import llvm, processor

PROGRAM = Path(__file__).parent.parent / "programs" / "computes.py"
SOURCE = Path(__file__).parents[3] / "src"

# How to hide instructions from us, from NumPy, OpenBLAS and the C library.
LEVELS = {
    "all": {},
    "avx512": {"SHARDWISE_PROCESSOR": "avx512", "OPENBLAS_CORETYPE": "SkylakeX"},
    "avx2": {
        "SHARDWISE_PROCESSOR": "avx2",
        "OPENBLAS_CORETYPE": "Haswell",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512DQ,-AVX512BW,-AVX512CD",
    },
}
NUMPYS = {"avx512": ("AVX512_ICL", "AVX512_SPR"), "avx2": ("X86_V4", "AVX512_SKX", "AVX512_ICL", "AVX512_SPR")}

# Few elements go through the loops of NumPy and the C library, which round these as the processor suits.
LIBRARY = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh cbrt power arctan2 "
    "erf erfc erf_inv logistic lgamma digamma gelu silu softplus selu hypot logaddexp normal exponential gumbel gamma laplace "
    "truncated chain".split()
)
TINY = {
    "float16": ml_dtypes.finfo("float16"),
    "bfloat16": ml_dtypes.finfo("bfloat16"),
    "float32": np.finfo(np.float32),
    "float64": np.finfo(np.float64),
}


def _hidden_from_numpy(level: str) -> str:
    import numpy._core._multiarray_umath as extension

    known = set(extension.__cpu_dispatch__)
    return " ".join(f for f in NUMPYS.get(level, ()) if f in known and extension.__cpu_features__[f])


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The table by level, all computed at once."""
    if not {"avx2", "fma"} <= processor.processor_flags():
        pytest.skip("this processor has no AVX2, or the system does not say what it has")
    wide = "avx512vl" in processor.processor_flags()
    place = tmp_path_factory.mktemp("tables")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("SHARDWISE_", "JAX_"))}
    running = {}
    for level, hidden in LEVELS.items():
        if level != "avx512" or wide:
            env = (
                inherited | {"PYTHONPATH": str(SOURCE), "NPY_DISABLE_CPU_FEATURES": _hidden_from_numpy(level)} | hidden
            )
            command = [sys.executable, str(PROGRAM), str(place / f"{level}.npz")]
            running[level] = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    for process in running.values():
        _, said = process.communicate(timeout=240)
        assert not process.returncode, said
    return {level: dict(np.load(place / f"{level}.npz")) for level in running}


def test_a_level_hides_its_instructions(tables):
    bytes = {level: int(table["target"][0]) for level, table in tables.items()}
    assert bytes["avx2"] in (0, 32) and bytes.get("avx512", 64) in (0, 64)
    assert tables["avx2"]["core"][0] in ("Haswell", "none")


def _differences(name: str, a: np.ndarray, b: np.ndarray) -> str | None:
    """What is wrong about two results of one program."""
    kind, words = name.split(" ", 1)
    what, dtype, size = words.rsplit(" ", 2)
    if dtype == "bfloat16" and a.dtype == np.uint16:
        a, b = a.view(ml_dtypes.bfloat16), b.view(ml_dtypes.bfloat16)
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{name}: {a.dtype}{a.shape} and {b.dtype}{b.shape}"
    bits = f"u{a.itemsize}"
    same = a == b if a.dtype.kind in "biu" else (a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return None
    shown = f"{name}: {a[~same][:3]} and {b[~same][:3]}, {np.count_nonzero(~same)} of {same.size}"
    if kind == "exact" and (what not in LIBRARY or (size == "many" and dtype != "float64")):
        return shown
    a, b = a[~same].astype(np.float64), b[~same].astype(np.float64)
    # Sums are measured by what is added: up to 401 products of values up to 9.
    scale = np.abs(a) if kind == "exact" else np.maximum(np.abs(a), 81 * 401)
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= 4 * float(TINY[dtype].eps) * scale + float(TINY[dtype].smallest_subnormal)
    return None if near.all() else shown


@pytest.mark.parametrize("level", ["avx512", "avx2"])
def test_results_do_not_depend_on_the_processor(tables, level):
    """Elementwise results, samples and orders have the same bits, sums and products are near."""
    if level not in tables:
        pytest.skip("this processor has no AVX-512")
    names = [name for name in tables["all"] if name not in ("target", "core")]
    assert len(names) > 500
    wrong = [_differences(name, tables["all"][name], tables[level][name]) for name in names]
    assert not [line for line in wrong if line]


def test_code_for_float16_rounds_each_step_where_the_processor_has_its_arithmetic(monkeypatch):
    if not llvm.available() or not {"avx2"} <= processor.processor_flags():
        pytest.skip("nothing can be compiled for such a processor here")
    import llvmlite.binding as binding

    texts = []
    compile_function = llvm.compile_function
    monkeypatch.setattr(
        llvm, "compile_function", lambda name, ir, *more: (texts.append(ir), compile_function(name, ir, *more))[1]
    )
    x = jnp.ones((307, 311), np.float16)
    sw.jit(lambda x, y: x * y + y)(x, x)
    sw.jit(lambda: random.uniform(random.key(0), (307, 311), np.float16, 0.3, 4.7))()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(cpu="sapphirerapids", opt=2)
    written = [machine.emit_assembly(binding.parse_assembly(text)) for text in texts if "half" in text]
    assert len(written) >= 2
    assert all("zmm" in code or "ymm" in code for code in written)
    assert not [line for code in written for line in re.findall(r"vfn?m(?:add|sub)\w*[ps]h.*", code)]


def test_the_level_is_fixed_once_code_is_made():
    llvm.available()
    other = "avx2" if config.shardwise_processor != "avx2" else None
    with config.override("shardwise_processor", other), pytest.raises(RuntimeError, match="SHARDWISE_PROCESSOR"):
        llvm.available()
    with pytest.raises(ValueError, match="shardwise_processor takes None or one of"):
        config.update("shardwise_processor", "sse2")


@pytest.mark.parametrize(
    ("level", "feature", "used"),
    [
        (None, "amx_tile", True),
        ("avx512", "amx-tile", False),
        ("avx512", "avx512_fp16", False),
        ("avx512", "avx512fp16", False),
        ("avx512", "avx512_bf16", False),
        ("avx512", "avx512f", True),
        ("avx512", "avx_vnni", False),
        ("avx512", "fma", True),
        ("avx2", "avx512vl", False),
        ("avx2", "avx2", True),
        ("avx2", "f16c", True),
        ("avx2", "avxvnni", False),
    ],
)
def test_what_levels_use(monkeypatch, level, feature, used):
    monkeypatch.setattr(processor, "processor_level", lambda: level)
    assert processor.uses(feature) == used


def test_kernels_of_other_levels_are_other_files(monkeypatch):
    kinds = {}
    for level in (None, "avx512", "avx2"):
        monkeypatch.setattr(processor, "processor_level", lambda level=level: level)
        kinds[level] = processor.processor_kind()
    assert kinds[None] is None or len(set(kinds.values())) == 3
