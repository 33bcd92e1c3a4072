"""`lax.map` gives the same whatever the size of its batches."""

import numpy as np
import pytest

from shardwise import lax
from shardwise.lax.mapping import map as lax_map


@pytest.mark.parametrize("batch_size", [None, 0, 1, 2, 3, 7, 9])
def test_batches_do_not_change_the_result(batch_size):
    xs = {"a": np.arange(14, dtype=np.float32).reshape(7, 2), "b": np.arange(7, dtype=np.float32)}

    def f(x):
        return lax.mul(x["a"], x["b"]), lax.reduce_sum(x["a"], (0,))

    product, total = lax_map(f, xs, batch_size=batch_size)
    assert (np.asarray(product) == xs["a"] * xs["b"][:, None]).all()
    assert (np.asarray(total) == xs["a"].sum(1)).all()


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="batch_size"):
        lax_map(lambda x: x, np.arange(3), batch_size=-1)
    with pytest.raises(ValueError, match="different leading"):
        lax_map(lambda x: x, (np.arange(3), np.arange(4)))
