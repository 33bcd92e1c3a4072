"""Functions of some of their arguments."""

from __future__ import annotations

from typing import Any

import pytest

from shardwise.api_util import argnums_partial
from shardwise.extend import linear_util as lu


def _listed(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


@pytest.mark.parametrize("wrapped", [False, True])
def test_arguments_are_fixed(wrapped: bool) -> None:
    f = lu.wrap_init(_listed, {"d": 4}) if wrapped else _listed
    made, chosen = argnums_partial(f, (-1, 0), (1, [2], 3), require_static_args_hashable=False)
    assert chosen == (3, 1)
    call = made.call_wrapped if wrapped else made
    assert call(30, 10) == ((10, [2], 30), {"d": 4} if wrapped else {})
    with pytest.raises(ValueError, match="Non-hashable static arguments"):
        argnums_partial(f, 0, (1, [2], 3))
    with pytest.raises(ValueError, match="position 3, but there are 2"):
        argnums_partial(f, (0, 3), (1, 2))


def test_wrapped_functions_are_equal_where_their_fixed_arguments_are() -> None:
    one, same, other = (argnums_partial(lu.wrap_init(_listed), 0, (0, x))[0] for x in (1, 1, True))
    assert one == same and hash(one) == hash(same) and one != other
