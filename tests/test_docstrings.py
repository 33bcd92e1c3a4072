"""Examples in docstrings print what they show."""

from __future__ import annotations

import builtins
import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shardwise

ROOT = Path(shardwise.__file__).parent


def _modules_with_examples() -> Iterator[str]:
    for file in sorted(ROOT.rglob("*.py")):
        if re.search(r"^ *>>> ", file.read_text(encoding="utf-8"), re.MULTILINE):
            parts = file.relative_to(ROOT.parent).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {"jax": shardwise, "shardwise": shardwise, "jnp": shardwise.numpy, "lax": shardwise.lax}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", list(_modules_with_examples()))
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    own = {
        name: value for name, value in vars(module).items() if not hasattr(builtins, name)
    }  # `sum` is Python's, `jnp.sum` ours
    failed, tried = doctest.testmod(module, globs=own | NAMES, optionflags=FLAGS)
    assert tried, "the examples are where doctest does not look: in a module's own functions, classes and methods"
    assert not failed


def _functions(module: str) -> dict[str, Any]:
    """The public functions of a module, also those that are objects of ours."""
    owner = importlib.import_module(module)
    named = {name: getattr(owner, name) for name in dir(owner) if not name.startswith("_")}
    return {
        name: value
        for name, value in named.items()
        if callable(value) and not inspect.isclass(value) and not inspect.ismodule(value)
    }


def _is_made(function: Any) -> bool:
    """Whether a maker gave the function its docstring, so that `test_examples` does not see it."""
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", None)
    return code is None or code.co_name != inner.__name__


@pytest.mark.parametrize("module", ["shardwise.numpy", "shardwise.lax", "shardwise.nn"])
def test_examples_of_functions_made_from_tables(module: str) -> None:
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    made = {name: f for name, f in _functions(module).items() if _is_made(f) and ">>>" in (f.__doc__ or "")}
    for name, function in made.items():
        runner.run(doctest.DocTestParser().get_doctest(function.__doc__, dict(NAMES), name, None, None))
    assert runner.tries >= len(made) > 0
    assert not runner.failures


# What has no example: plumbing of shapes and tokens, and what needs a machine, a file or a page to be shown.
WITHOUT = {
    "shardwise.numpy": "einsum_path fromfile fromiter load save savez",
    "shardwise.lax": "DotDimensionNumbers after_all composite conv_dimension_numbers conv_general_dilated_local conv_general_shape_tuple "
    "conv_transpose_shape_tuple conv_with_general_padding create_token custom_linear_solve gather index_take pcast platform_dependent "
    "pvary ragged_all_to_all ragged_dot_general reduce_window_shape_tuple rng_bit_generator scaled_dot scatter scatter_add "
    "scatter_apply scatter_max scatter_min scatter_mul scatter_sub shape_as_value stage with_sharding_constraint",
    "shardwise.lax.linalg": "householder_product ormqr",
    "shardwise.nn": "get_scaled_dot_general_config scaled_dot_general scaled_matmul",
    "shardwise.scipy.special": "sph_harm",  # deprecated in favor of sph_harm_y
    "shardwise.random": "default_prng_impl key_dtype resolve_prng_impl",
}


@pytest.mark.parametrize(
    "module",
    [*WITHOUT, *(f"shardwise.{m}" for m in (
        "nn.initializers", "numpy.fft", "numpy.linalg", "scipy.linalg", "scipy.signal", "scipy.stats", "dtypes",
    ))],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_public_function_has_an_example(module: str) -> None:
    lacking = {name for name, f in _functions(module).items() if ">>>" not in (inspect.getdoc(f) or "")}
    assert lacking == set(WITHOUT.get(module, "").split())
