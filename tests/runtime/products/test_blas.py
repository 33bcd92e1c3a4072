"""Our own OpenBLAS: what is loaded where, which kernels it is asked for, and that nothing outside of it changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from shardwise.runtime.machine import kernel_store
from shardwise.runtime.products import blas

ALL_WIDE = frozenset("avx512f avx512dq avx512bw avx512vl avx512cd avx2 fma avx sse2".split())


@pytest.mark.parametrize(
    ("core", "flags", "level", "wanted"),
    [
        ("Haswell", ALL_WIDE, None, "SkylakeX"),
        ("Zen", ALL_WIDE, None, "SkylakeX"),
        ("SkylakeX", ALL_WIDE, None, None),
        ("SapphireRapids", ALL_WIDE, None, None),
        ("SapphireRapids", ALL_WIDE, "avx512", "SkylakeX"),
        ("SapphireRapids", ALL_WIDE - {"avx512f"}, "avx2", "Haswell"),
        ("Haswell", ALL_WIDE - {"avx512bw"}, None, None),
        ("Haswell", ALL_WIDE - {"avx512f"}, "avx2", None),
        ("neoversen1", frozenset(), None, None),
    ],
)
def test_kernels_follow_the_instructions(monkeypatch, core, flags, level, wanted):
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    monkeypatch.setattr(blas, "processor_level", lambda: level)
    assert blas.best_core(core, flags) == wanted


def test_a_core_type_that_the_user_names_is_kept(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    assert blas.best_core("Haswell", ALL_WIDE) is None


# Each run is a process of its own, with NumPy's library made to choose old kernels where `core` is given.
PROGRAM = """
import json, os, sys
import numpy as np
core = sys.argv[1]
for name in sys.argv[2].split(","):
    os.environ.pop(name, None)
import ctypes
import shardwise as jax
import shardwise.numpy as jnp
loaded = len([n for n in open("/proc/self/maps") if "shardwise-openblas" in n]) if os.path.exists("/proc/self/maps") else 0
before = dict(os.environ)
rng = np.random.default_rng(0)
worst = 0
for dtype in ("float32", "complex64"):
    a, b = (rng.normal(size=s).astype(dtype) for s in ((300, 200), (200, 500)))
    for x, y in ((a, b), (np.ascontiguousarray(a.T).T, b), (a, np.ascontiguousarray(b.T).T)):
        got = np.asarray(jax.jit(jnp.matmul)(x, y))
        worst = max(worst, float(abs(got - np.einsum("ij,jk", x, y)).max()))
from shardwise.runtime.machine import kernel_store
from shardwise.runtime.products import blas
mine, numpys = blas.library(), blas.numpys_library() if sys.platform == "linux" else None
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
answer = dict(loaded_at_import=loaded, worst=worst, core=mine and mine.core, numpys=numpys and numpys[3],
              same=before == dict(os.environ), left=str(getenv(b"OPENBLAS_CORETYPE")), threads=str(getenv(b"OPENBLAS_NUM_THREADS")))
maps = open("/proc/self/maps").read() if os.path.exists("/proc/self/maps") else ""
answer["kept"] = bool(os.environ.get("SHARDWISE_CACHE_DIR")) and os.environ["SHARDWISE_CACHE_DIR"] + "/openblas" in maps
child = os.fork()
if child == 0:
    os._exit(0 if np.allclose(jax.jit(jnp.matmul)(x, y), got) else 1)
answer["child"] = os.waitpid(child, 0)[1]
print(json.dumps(answer))
"""


def run(core: str = "", **environment: str) -> dict[str, Any]:
    dropped = ",".join(["OPENBLAS_CORETYPE"] if core else ["-"])
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("OPENBLAS_CORETYPE", "SHARDWISE_PROCESSOR")
    }
    env = inherited | ({"OPENBLAS_CORETYPE": core} if core else {}) | environment
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, core, dropped], env=env, capture_output=True, text=True, timeout=120
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


def test_a_copy_of_its_own():
    found = run()
    assert found["loaded_at_import"] == 0
    assert found["worst"] < 1e-3
    assert (
        found["same"]
        and found["left"] == "None"
        and found["threads"] == str(os.environ.get("OPENBLAS_NUM_THREADS", "").encode() or None)
    )
    assert found["child"] == 0


def test_a_copy_that_passed_is_kept(tmp_path):
    place = tmp_path / "kept"
    whole = b""
    for damaged in (False, False, True):
        if damaged:
            (file,) = place.glob("*.so")
            whole = file.read_bytes()
            content = bytearray(file.read_bytes())
            for at in range(0, len(content), 4096):  # anywhere: what is loaded by such a file ends the process
                content[at] ^= 1
            file.write_bytes(content)
        found = run(SHARDWISE_CACHE_DIR=str(place), SHARDWISE_CACHE="1")
        if found["core"] is None:
            pytest.skip("no library of our own here")
        assert found["worst"] < 1e-3 and found["child"] == 0
        assert found["kept"]
        (file,) = place.glob("openblas*")
        if damaged:
            assert file.read_bytes() == whole


def test_a_folder_that_takes_no_files_does_without(tmp_path, monkeypatch):
    if blas.library() is None:
        pytest.skip("no library of our own here")
    place = tmp_path / "full"
    place.mkdir(mode=0o700)
    monkeypatch.setattr(kernel_store, "_stores", {str(place): kernel_store._open_store(str(place))})
    monkeypatch.setattr(kernel_store, "folder", lambda: str(place))
    monkeypatch.setattr(kernel_store.Store, "_open", lambda *arguments: os.open("/nowhere/file", os.O_RDONLY))
    mine = blas._load_copy()
    assert mine is not None and blas._computes(mine)
    assert not list(place.iterdir())


def test_a_copy_with_wrong_results_is_not_kept(tmp_path, monkeypatch):
    if blas.library() is None:
        pytest.skip("no library of our own here")
    place = tmp_path / "kept"
    monkeypatch.setattr(kernel_store, "folder", lambda: str(place))
    monkeypatch.setattr(blas, "_computes", lambda mine: False)
    assert blas._load_copy() is None
    assert place.is_dir() and not list(place.iterdir())


@pytest.mark.skipif(not blas.processor_flags() >= blas._WIDE_FLAGS, reason="the processor has no AVX-512")
def test_numpys_choice_does_not_bind_us():
    found = run(core="Haswell")
    if found["numpys"] is None:
        pytest.skip("NumPy has another BLAS")
    assert found["numpys"] == "Haswell"
    assert found["core"] is None or found["core"] in ("SkylakeX", "Cooperlake", "Sapphirerapids")
    assert found["worst"] < 1e-3


def test_numpy_alone():
    found = run(SHARDWISE_BLAS="numpy")
    assert found["core"] is None and found["worst"] < 1e-3


def test_a_library_with_wrong_results_is_not_used(monkeypatch):
    mine = blas.library()
    if mine is None:
        pytest.skip("no library of our own here")
    assert blas._computes(mine)
    monkeypatch.setitem(mine.gemm, "d", lambda *arguments: None)
    assert not blas._computes(mine)


def test_any_other_blas_means_numpy(monkeypatch):
    monkeypatch.setattr(blas, "numpys_library", lambda: None)
    assert blas._load_kept() is None and blas._load_copy() is None
    monkeypatch.setattr(blas, "numpys_library", lambda: ("/nowhere/libopenblas.so", "", "", "Haswell"))
    assert blas._load_kept() is None and blas._load_copy() is None


def test_the_copy_runs_in_the_calling_thread():
    mine = blas.library()
    if mine is None:
        pytest.skip("no library of our own here")
    threads = mine.function("openblas_get_num_threads")
    assert threads() == 1
