"""The signatures of JAX's public functions, classes and methods, as data: from the JAX or the shardwise of this interpreter.

``python tests/calls/signatures.py`` under JAX 0.5.3 writes the record of that era beside this file.
"""

from __future__ import annotations

import importlib
import inspect
import json
import lzma
import types
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("signatures.json.xz")
DISTRIBUTIONS = """bernoulli beta betabinom binom cauchy chi2 dirichlet expon gamma gennorm geom gumbel_l gumbel_r laplace logistic
multinomial multivariate_normal nbinom norm pareto poisson t truncnorm uniform vonmises wrapcauchy"""
MODULES = """
numpy numpy.linalg numpy.fft lax lax.linalg nn nn.initializers random image ops dtypes
scipy.special scipy.linalg scipy.fft scipy.signal scipy.ndimage scipy.optimize scipy.integrate scipy.interpolate scipy.cluster.vq
scipy.spatial.transform scipy.sparse.linalg scipy.stats
tree tree_util flatten_util sharding errors debug profiler distributed stages monitoring dlpack ref
ad_checkpoint custom_batching custom_derivatives test_util example_libraries.optimizers example_libraries.stax
experimental experimental.shard_map experimental.pjit experimental.mesh_utils experimental.multihost_utils experimental.checkify
experimental.custom_partitioning experimental.layout experimental.jet experimental.ode experimental.compute_on
experimental.xla_metadata experimental.key_reuse experimental.colocated_python
"""
# For those who extend JAX: of classes there the constructors alone are asked about, but for BCOO.
INSIDE = """
core extend.core extend.linear_util interpreters.ad interpreters.batching interpreters.partial_eval interpreters.pxla interpreters.xla
interpreters.mlir api_util experimental.sparse experimental.hijax experimental.array_serialization.serialization
"""

Parameter = list[Any]  # name, kind, default as text or None
_PLAIN = (bool, int, float, complex, str, type(None))


def _default(value: Any) -> str | None:
    if value is inspect.Parameter.empty:
        return None
    if isinstance(value, type):
        return value.__name__
    plain = isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(isinstance(v, _PLAIN) for v in value))
    return repr(value) if plain or repr(value) == "None" else "..."


def signature(function: Any) -> list[Parameter] | None:
    """The parameters of a function; None where it tells none. Names that no call can give are left out."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    unnamed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [["" if p.kind in unnamed else p.name, int(p.kind), _default(p.default)] for p in parameters]


def _members(path: str, kind: type) -> dict[str, Any]:
    if issubclass(kind, (BaseException, int, tuple)) or getattr(kind, "_is_protocol", False):
        return {path: None}
    found = {path: signature(kind)}
    for name in dir(kind):
        if not name.startswith("_"):
            static = inspect.getattr_static(kind, name)
            member = getattr(kind, name) if isinstance(static, (staticmethod, classmethod)) else static
            if callable(member) and not isinstance(member, type):
                found[f"{path}.{name}"] = signature(member)
    return found


def signatures(root: str, paths: Iterable[str] = ()) -> dict[str, Any]:
    """By path (``numpy.linalg.norm``) the signature of all that is callable and of `root` itself.

    `paths` name what is looked for even where `dir` does not tell it.
    """
    asked: dict[str, set[str]] = {}
    for path in paths:
        asked.setdefault(path.rpartition(".")[0], set()).add(path.rpartition(".")[2])
    found: dict[str, Any] = {}
    warnings.simplefilter("ignore")
    importlib.import_module(f"{root}.numpy")
    for module in ["", *MODULES.split(), *INSIDE.split(), *(f"scipy.stats.{name}" for name in DISTRIBUTIONS.split())]:
        try:
            space = importlib.import_module(f"{root}.{module}" if module else root)
        except ImportError:
            continue
        for name in sorted({*dir(space), *asked.get(module, ())}):
            value = getattr(space, name, None)
            home = getattr(value, "__module__", None) or ""
            if name.startswith("_") or isinstance(value, types.ModuleType) or not callable(value):
                continue
            if root == "jax" and not home.startswith(("jax._src", "jaxlib", "jax.")):
                continue
            path = f"{module}.{name}".lstrip(".")
            if isinstance(value, type) and (module not in INSIDE.split() or name == "BCOO"):
                found |= _members(path, value)
            else:
                found[path] = signature(value)
    return found


def recorded() -> dict[str, Any]:
    return json.loads(lzma.decompress(RECORD.read_bytes()))


if __name__ == "__main__":
    RECORD.write_bytes(lzma.compress(json.dumps(signatures("jax"), sort_keys=True).encode()))
