"""The public names: those that JAX has, no accidental ones, and with JAX's parameters."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest

FACES = (
    "",
    "debug",
    "distributed",
    "dtypes",
    "errors",
    "experimental.mesh_utils",
    "experimental.multihost_utils",
    "experimental.pjit",
    "experimental.shard_map",
    "lax",
    "nn",
    "nn.initializers",
    "numpy",
    "numpy.fft",
    "numpy.linalg",
    "random",
    "sharding",
    "tree",
    "tree_util",
)

# Names of JAX 0.5.3, one line for each of its modules; some of them are gone from JAX 0.10.
OLD = {
    "" if name == "jax" else name: set(names.split())
    for name, names in (
        line.split(": ", 1) for line in Path(__file__).with_name("names_of_jax_0_5_3.txt").read_text().splitlines()
    )
}

# Names that only shardwise has, on purpose, or that JAX had before 0.5.3 or between that and 0.10.
OWN = {
    "": ["config", "tree_map"],
    "lax": ["PaddingType", "pvary", "regularized_incomplete_beta"],
    "nn": ["normalize"],
    "random": ["PRNGSpec", "default_prng_impl", "resolve_prng_impl"],
    "errors": ["ShardwiseError"],
    "debug": ["Traffic", "count_traffic"],
    "sharding": [
        *"AbstractDevice AxisEnv HloSharding OpSharding P Topology Tiling Chunked NoSharding Replicated ShardedAxis".split(),
        *"ShardingSpec Unstacked backend_initialized default_backend device_count devices get_concrete_mesh".split(),
        *"host_count host_id host_ids legacy_mesh local_device_count local_devices make_mesh process_count".split(),
        *"process_index process_indices sharding_like Device".split(),
    ],
}

# What the documents that shardwise implements use; all of these must be there.
NEEDED = {
    "": """Array NamedSharding config device_count device_put devices jit live_arrays make_array_from_callback
        make_array_from_process_local_data make_array_from_single_device_arrays make_mesh pmap typeof""",
    "debug": "inspect_array_sharding print visualize_array_sharding visualize_sharding",
    "experimental.multihost_utils": """assert_equal broadcast_one_to_all global_array_to_host_local_array
        host_local_array_to_global_array process_allgather sync_global_devices""",
    "experimental.pjit": "pjit",
    "experimental.shard_map": "shard_map",
    "lax": """all_gather all_to_all axis_index axis_size pcast pmax pmean pmin ppermute pshuffle psum psum_scatter pvary
        with_sharding_constraint conv_general_dilated""",
    "nn": "relu sigmoid softmax gelu",
    "numpy": "arange array asarray convolve copy float32 ndarray sin sum",
    "random": """PRNGKey bernoulli bits categorical choice fold_in gumbel key normal permutation randint split
        truncated_normal uniform""",
    "sharding": """AbstractMesh AxisType GSPMDSharding Mesh NamedSharding PartitionSpec PmapSharding PositionalSharding
        Sharding SingleDeviceSharding set_mesh use_mesh""",
    "tree": "flatten leaves map structure unflatten",
    "tree_util": "tree_flatten tree_leaves tree_map tree_unflatten",
}


def face(name: str) -> ModuleType:
    return importlib.import_module(f"shardwise.{name}" if name else "shardwise")


def public(module: ModuleType) -> set[str]:
    """`__all__`, or else names without an underscore that are shardwise's own; inner modules are no exports."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    names = set()
    for name in dir(module):
        value = getattr(module, name, None)
        foreign = not getattr(value, "__module__", "shardwise").startswith("shardwise")
        inner = isinstance(value, ModuleType) and value.__name__ in (f"{module.__name__}.{name}", name)
        if not name.startswith("_") and not foreign and not inner and not isinstance(value, ModuleType):
            names.add(name)
    return names


@pytest.mark.parametrize("name", NEEDED)
def test_needed_names(name):
    module = face(name)
    assert [needed for needed in NEEDED[name].split() if not hasattr(module, needed)] == []


@pytest.mark.parametrize("name", FACES)
def test_only_names_of_jax(name):
    pytest.importorskip("jax")
    try:
        theirs = set(dir(importlib.import_module(f"jax.{name}" if name else "jax")))
    except ModuleNotFoundError:
        theirs = set()
    ours = public(face(name))
    extra = sorted(ours - theirs - OLD.get(name, set()) - set(OWN.get(name, ())) - {"annotations"})
    assert extra == [], ", ".join(extra)


@pytest.mark.parametrize("name", FACES)
def test_everything_listed_is_there(name):
    module = face(name)
    assert [listed for listed in dir(module) if not hasattr(module, listed)] == []


def functions_of_both(name):
    """The functions that a module and JAX's of that name have: name, ours, JAX's."""
    pytest.importorskip("jax")
    try:
        theirs = importlib.import_module(f"jax.{name}" if name else "jax")
    except ModuleNotFoundError:
        pytest.skip("JAX 0.10 has no such module")
    ours = face(name)
    for function in sorted(public(ours) & set(dir(theirs))):
        mine, real = getattr(ours, function), getattr(theirs, function)
        if callable(mine) and not isinstance(mine, type) and not isinstance(real, type):
            yield function, mine, real


@pytest.mark.parametrize("name", FACES)
def test_parameters_of_jax(name):
    """A call that JAX takes is taken here: each of JAX's parameters, under its name and in its place."""
    different = []
    for function, mine, real in functions_of_both(name):
        try:
            missing = missing_parameters(inspect.signature(mine), inspect.signature(real))
            if type(real).__name__ == "ufunc":  # JAX's ufuncs name these two and refuse them
                missing = [parameter for parameter in missing if parameter not in ("out", "where")]
        except (TypeError, ValueError):
            continue
        if missing:
            different.append(f"{function}{inspect.signature(mine)} lacks {', '.join(missing)}")
    assert different == [], "\n".join(different)


@pytest.mark.parametrize("name", FACES)
def test_defaults_of_jax(name):
    """A call that leaves an argument out means the same: defaults that are plain values are JAX's."""
    different = []
    for function, mine, real in functions_of_both(name):
        try:
            own, others = inspect.signature(mine).parameters, inspect.signature(real).parameters
        except (TypeError, ValueError):
            continue
        for parameter in own.keys() & others.keys():
            given, wanted = own[parameter].default, others[parameter].default
            if isinstance(wanted, bool | int | float | str | tuple | None) and given != wanted:
                different.append(f"{function}: {parameter} is {given!r} by default, in JAX {wanted!r}")
    assert sorted(different) == []


def missing_parameters(mine: inspect.Signature, real: inspect.Signature) -> list[str]:
    """Parameters of `real` that `mine` would not take by name, or not at their position."""
    kinds = inspect.Parameter
    if any(parameter.kind is kinds.VAR_KEYWORD for parameter in mine.parameters.values()):
        return []
    positional = [
        p.name for p in mine.parameters.values() if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    ]
    takes_any = any(parameter.kind is kinds.VAR_POSITIONAL for parameter in mine.parameters.values())
    missing = []
    for place, parameter in enumerate(real.parameters.values()):
        if parameter.kind is kinds.POSITIONAL_ONLY:
            if place >= len(positional) and not takes_any:
                missing.append(f"position {place} ({parameter.name})")
        elif parameter.kind is kinds.POSITIONAL_OR_KEYWORD:
            if parameter.name not in mine.parameters:
                missing.append(parameter.name)
            elif parameter.name in positional and positional.index(parameter.name) != place:
                missing.append(f"{parameter.name} at position {place}")
        elif parameter.kind is kinds.KEYWORD_ONLY and parameter.name not in mine.parameters:
            missing.append(parameter.name)
    return missing
