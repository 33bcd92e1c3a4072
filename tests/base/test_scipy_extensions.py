"""Compiled modules of SciPy, loaded without its packages: the same functions, and no longer first calls."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.machinery import PathFinder

import numpy as np
import pytest
import scipy.special

from shardwise.base import scipy_extensions
from shardwise.base.scipy_extensions import scipy_extension, special_ufunc

LOADS_NO_PACKAGES = """
import sys
import shardwise as jax
import shardwise.numpy as jnp
x = jnp.ones((40, 40), jnp.float32)
jax.block_until_ready(jax.jit(lambda x: (jnp.fft.fft(x), jnp.fft.irfft(jnp.fft.rfft(x)), jnp.linalg.qr(x)))(x))
jax.block_until_ready(jax.scipy.special.gammaln(x))
heavy = {"scipy.fft", "scipy.linalg", "scipy.special"} & set(sys.modules)
assert not heavy, heavy
import scipy.fft, scipy.linalg
from scipy.linalg import get_lapack_funcs
assert scipy.linalg.qr(jax.device_get(x))[0].shape == (40, 40) and scipy.fft.fft([1.0, 2.0])[0] == 3
"""


def test_first_calls_import_no_packages_and_leave_them_whole():
    done = subprocess.run([sys.executable, "-c", LOADS_NO_PACKAGES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["linalg._flapack", "fft._pocketfft.pypocketfft", "sparse._sparsetools"])
def test_the_functions_are_those_of_the_packages(name):
    whole = importlib.import_module(f"scipy.{name}")
    assert {n for n in dir(scipy_extension(name)) if not n.startswith("_")} == {
        n for n in dir(whole) if not n.startswith("_")
    }


def test_without_its_file_a_module_is_imported(monkeypatch):
    monkeypatch.setattr(PathFinder, "find_spec", classmethod(lambda *_: None))
    assert scipy_extensions._load_module("scipy.linalg._flapack") is None
    monkeypatch.undo()
    monkeypatch.setattr(scipy_extensions, "_load_module", lambda full: None)
    assert scipy_extension.__wrapped__("linalg._fblas").sgemm(1.0, np.eye(2), np.eye(2))[0, 0] == 1
    with pytest.raises(ImportError):
        scipy_extension.__wrapped__("linalg._no_such_module")


@pytest.mark.parametrize(
    ("name", "operands"), [("gammaln", 1), ("psi", 1), ("erfcx", 1), ("erfinv", 1), ("gammainc", 2), ("_zeta", 2)]
)
def test_ufuncs_are_those_of_scipy_special(name, operands):
    x = np.linspace(0.1, 0.9, 9), np.linspace(1.1, 3.9, 9)
    np.testing.assert_array_equal(
        special_ufunc(name)(*x[:operands]), getattr(scipy.special, name.strip("_"))(*x[:operands])
    )


@pytest.mark.parametrize("name", ["no_such_function", "errstate"])
def test_what_is_no_ufunc(name):
    with pytest.raises(AttributeError):
        special_ufunc(name)
