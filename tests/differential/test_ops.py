"""The law above all: no sharding changes what an op computes. Shardwise and JAX, on the same random layouts."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.differential.oracle import compare
from tests.differential.programs import AUTOMATIC_ONLY, FAMILIES, MESHES, placed

# Quick enough for every run, with a fixed seed, so that a run that passes does so again. EXAMPLES=500 in the environment
# looks further, each time elsewhere.
EXAMPLES = int(os.environ.get("EXAMPLES", "0"))
few = settings(
    max_examples=EXAMPLES or 7,
    deadline=None,
    derandomize=not EXAMPLES,
    report_multiple_bugs=False,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),  # type: ignore[arg-type]
)


@pytest.mark.parametrize("family", FAMILIES)
def test_layouts_change_no_values(family):
    @few
    @given(placed(FAMILIES[family]))
    def law(case):
        compare(case.source(), reference=case.source(axis_type=None), ulps=case.case.ulps)

    law()


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - AUTOMATIC_ONLY))
def test_explicit_types(family):
    """In explicit mode types carry shardings: they agree with JAX's, or both refuse the operation.

    What JAX only has not implemented may work here, with the right values.
    """
    splitting = [mesh for mesh in MESHES if 1 not in mesh]  # JAX counts dims over an axis of size 1 as split

    @few
    @given(placed(FAMILIES[family], splitting), st.booleans())
    def law(case, jit):
        calls = "jax.jit(f)(*args)" if jit else "f(*args)"
        source, plain = case.source("Explicit", calls), case.source(None, calls)
        compare(source, if_not_implemented=plain, ulps=case.case.ulps, types=True)

    law()
