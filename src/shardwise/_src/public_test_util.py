"""`test_util`, with the comparison of trees that it uses."""

from typing import Any

from shardwise import test_util as _test_util
from shardwise.test_util import *  # noqa: F403


def check_close(xs: Any, ys: Any, atol: Any = None, rtol: Any = None, err_msg: str = "") -> None:
    """Compare two trees of arrays; the tolerances not given are those of their dtypes, times the number of elements.

    Raises:
        AssertionError: structures, shapes or values differ.
    """
    _test_util.check_close(xs, ys, atol, rtol, err_msg or "the values")
