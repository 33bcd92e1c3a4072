"""The recorded answers of JAX are those of the installed one."""

from __future__ import annotations

import pytest

from tests.numpy.face import all_expressions, live_answer, recorded


@pytest.mark.slow
def test_the_record_is_jaxs():
    pytest.importorskip("jax")
    for expression in all_expressions():
        assert repr(recorded()[expression]) == repr(live_answer(expression)), expression  # NaN equals NaN


def test_every_expression_is_recorded():
    assert set(all_expressions()) <= recorded().keys()
