"""The page of docs/errors for an error, by the place in the source that raises it.

A page named by the error's class, or by `errors.about` where it is raised, takes precedence. Places are files and folders below the
package; the nearest one counts.
"""

from __future__ import annotations

import os

PLACES = {
    "argument-type": "numpy/operators.py ops/rules/convert.py transforms/jit/binding.py transforms/tracing/traced.py",
    "custom-rules": "transforms/derivatives/custom_batching.py transforms/derivatives/custom_jvp.py "
    "transforms/derivatives/custom_rules.py transforms/derivatives/custom_vjp.py",
    "derivatives": "transforms/bodies/while_rules.py transforms/derivatives/arguments.py "
    "transforms/derivatives/autodiff.py transforms/interpreters/linear_maps.py",
    "devices-differ": "engine/compile.py",
    "dtypes": "base/dtypes.py base/lattice.py",
    "export": "export",
    "guards": "engine/guards.py",
    "indexing": "numpy/_indexer.py numpy/indexing.py ops/indexing",
    "jit-shardings": "transforms/jit/compiled.py transforms/jit/constraints.py transforms/jit/jit_shardings.py",
    "loops-and-branches": "ops/control",
    "mapped-dims": "transforms/interpreters/vmap.py transforms/manual/pmap.py transforms/manual/pmap_devices.py",
    "memory": "runtime/memory.py engine/planned.py",
    "mesh-axis": "sharding/base_mesh.py sharding/mesh.py sharding/named.py sharding/spec.py",
    "own-parts": "engine/device_put.py engine/make_array.py",
    "plan": "plan planner",
    "processes": "distributed.py runtime/processes",
    "random-keys": "ops/random random",
    "shapes": "numpy/_promote.py numpy/creation.py numpy/cross.py numpy/diagonals.py numpy/einsum.py numpy/functional.py "
    "numpy/joining.py numpy/linalg.py numpy/padding.py numpy/polynomial.py numpy/products.py numpy/rearranging.py "
    "numpy/reductions.py numpy/shapes.py numpy/sorting_search.py ops/elementwise ops/linalg ops/products "
    "ops/reductions ops/rules/dims.py ops/rules/operands.py ops/shapes",
    "shard-map": "ops/devices transforms/manual",
    "static-arguments": "transforms/tracing/arguments.py",
    "trees": "base/tree.py base/treeclass.py base/treedef.py base/treepath.py",
}
_TOPICS = {place: topic for topic, places in PLACES.items() for place in places.split()}


def topic_at(path: str) -> str:
    """The topic of errors that are raised in a file, whose path is given from the package's folder on; empty if it has none."""
    while path:
        if path in _TOPICS:
            return _TOPICS[path]
        path = os.path.dirname(path)
    return ""
