"""Dtypes and weak types of what functions give, for all dtypes, weak types and scalars, beside JAX of both eras."""

from __future__ import annotations

import warnings

import pytest

from tests.calls.promotion import Namespaces, questions, recorded

# Weak types that JAX 0.5.3 gives otherwise than JAX 0.10, whose are given in both dialects.
OTHERS_IN_SEED = "jnp.floor_divide jnp.divmod __floordiv__ __rfloordiv__ __divmod__ __rdivmod__ jnp.logaddexp2".split()
# JAX computes the densities of complex numbers; here they are refused as by the other distributions.
REAL_HERE = "st.norm.logpdf st.cauchy.pdf st.cauchy.ppf st.logistic.pdf st.logistic.cdf".split()
SHARE = 27  # the default run asks one question in so many, always the same ones


def differing(dialect: str, rank: int, share: int) -> list[str]:
    module, known, found, count = Namespaces("shardwise", (2,) * rank), recorded(dialect, rank), [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, operands, fun in questions(module):
            for operand, expected in zip(operands, known[name].split("|"), strict=True):
                count += 1
                if (count % share and "pow" not in name) or (dialect == "seed" and name in OTHERS_IN_SEED):
                    continue
                if name in REAL_HERE and expected.startswith("complex"):
                    continue
                ours = module.facts(fun, *operand)
                if ours != expected:
                    found.append(f"{name}({', '.join(operand)}) is {ours}, JAX's {expected}")
    return found


@pytest.mark.parametrize("rank", [0, 1])
def test_as_jax(dialect: str, rank: int) -> None:
    assert differing(dialect, rank, SHARE) == []


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_all_as_jax(dialect: str, rank: int) -> None:
    assert differing(dialect, rank, 1) == []
