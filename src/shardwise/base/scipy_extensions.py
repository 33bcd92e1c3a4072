"""Compiled modules of SciPy without the Python around them, which takes a quarter of a second of a process's first transform.

Comes in: a module's name. Goes out: the module, loaded from its file, or, where that is not to be had, imported with its packages.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from typing import Any

import numpy as np


@functools.cache
def scipy_extension(name: str) -> Any:
    """The compiled module `scipy.{name}`. ImportError where there is none."""
    full = f"scipy.{name}"
    return sys.modules.get(full) or _load_module(full) or importlib.import_module(full)


@functools.cache
def special_ufunc(name: str) -> np.ufunc:
    """A ufunc of `scipy.special`, public or not. AttributeError where SciPy has no such ufunc."""
    try:
        ufunc = getattr(scipy_extension("special._special_ufuncs"), name)
    except (ImportError, AttributeError):  # others, and all of older versions
        ufunc = getattr(importlib.import_module("scipy.special._ufuncs"), name)
    if not isinstance(ufunc, np.ufunc):
        raise AttributeError(f"scipy.special.{name} is no ufunc")
    return ufunc


def _load_module(full: str) -> Any:
    """The module from its file; None where it has none, or cannot be loaded so."""
    scipy = importlib.util.find_spec("scipy")
    places = None if scipy is None else scipy.submodule_search_locations
    if not places:
        return None
    inner = full.split(".")[1:-1]
    spec = PathFinder.find_spec(full, [os.path.join(place, *inner) for place in places])
    if spec is None or spec.loader is None:
        return None
    try:
        new_module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(new_module)
    except ImportError:
        return None
    return new_module
