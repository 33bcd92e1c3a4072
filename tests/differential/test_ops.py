"""The law above all: no sharding changes what an op computes. Shardwise and JAX, on the same random layouts."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.differential.oracle import compare
from tests.differential.programs import FAMILIES, placed

# Enough examples to find a broken rule within a few runs and quick enough for every run; the seed is fixed, so that
# a run that passes does so again. HYPOTHESIS_PROFILE=thorough looks further.
few = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("family", FAMILIES)
def test_layouts_change_no_values(family):
    @few
    @given(placed(FAMILIES[family]))
    def law(case):
        compare(case.source(), reference=case.source(axis_type=None), ulps=case.case.ulps)

    law()


@pytest.mark.parametrize("family", FAMILIES)
def test_explicit_types(family):
    """In explicit mode types carry shardings: they agree with JAX's, or both refuse the operation."""

    @few
    @given(placed(FAMILIES[family]), st.booleans())
    def law(case, jit):
        calls = "jax.jit(f)(*args)" if jit else "f(*args)"
        compare(case.source("Explicit", calls), ulps=case.case.ulps, types=True)

    law()
