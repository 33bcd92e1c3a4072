"""The page "What differs from JAX": its snippets run, its lists are the code's, and every refusal names a way out."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.experimental.key_reuse
import shardwise.experimental.sparse
import shardwise.extend.random
import shardwise.numpy as jnp
import shardwise.profiler
import shardwise.scipy.fft
import shardwise.scipy.special
from shardwise.base.gone import ABSENT, REFUSING
from shardwise.base.inert_options import NO_EFFECT, ONE_VALUE
from shardwise.experimental import pallas
from shardwise.experimental.layout import Format, Layout
from tests.test_nothing_pretends import SCIPY_HINTS, UNREAD

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "what-differs-from-jax.md").read_text()


def table(title: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    text = re.split(r"^#+ ", PAGE.partition(f"# {title}\n")[2], maxsplit=1, flags=re.M)[0]
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def guarded(move: Callable[[], Any]) -> bool:
    """Whether a move passes all guards."""
    with jax.transfer_guard("disallow"):
        try:
            move()
        except jax.errors.JaxRuntimeError:
            return False
    return True


def quiet(call: Callable[[], Any]) -> bool:
    call()  # the tests turn warnings into errors
    return True


def warned(call: Callable[[], Any]) -> bool:
    with pytest.warns(UserWarning):
        call()
    return True


def kind_within_auto_axes() -> str:
    """The class of what an eager call of a function with `auto_axes` gets."""
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    kinds = []
    with jax.set_mesh(mesh):
        jax.sharding.auto_axes(lambda v: (kinds.append(type(v).__name__), v)[1], out_sharding=jax.P())(jnp.ones(2))
    return kinds[0]


def unreduced(call: Callable[[Any], Any]) -> bool:
    """Whether what `call` makes of partial sums is partial sums."""
    jax.config.update("shardwise_dialect", "latest")
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    marks = []

    def total(a: Any) -> Any:
        sums = jnp.einsum("i,i->", a, a, out_sharding=jax.P(unreduced={"x"}))
        marks.append(jax.typeof(call(sums)).sharding.spec.unreduced)
        return jax.sharding.reshard(sums, jax.P())

    with jax.set_mesh(mesh):
        jax.jit(total)(jax.device_put(jnp.ones(4), jax.NamedSharding(mesh, jax.P("x"))))
    return bool(marks[0])


def parts_of_a_sum() -> list[float]:
    """What two devices show of a sum of four ones that is not complete yet."""
    jax.config.update("shardwise_dialect", "latest")
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        ones = jax.device_put(jnp.ones(4), jax.NamedSharding(mesh, jax.P("x")))
        total = jnp.einsum("i,i->", ones, ones, out_sharding=jax.P(unreduced={"x"}))
        return [float(np.asarray(s.data)) for s in total.addressable_shards]


def lies_alike(f: Callable[[Any], Any]) -> bool:
    """Whether a split row gives one that is split alike."""
    mesh = jax.make_mesh((4,), ("x",))
    row = jax.device_put(jnp.arange(1.0, 2**15 + 1), jax.NamedSharding(mesh, jax.P("x")))
    return jax.jit(f)(row).sharding == row.sharding


def overflows(call: Callable[[], Any]) -> bool:
    with pytest.raises(OverflowError):
        call()
    return True


def refused_deleted() -> bool:
    x = jnp.ones(2)
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        jax.jit(lambda v: 1)(x)
    return True


def kept_by_a_shard() -> float:
    """An element of a shard whose array is deleted."""
    x = jnp.ones(2)
    part = x.addressable_shards[0].data
    x.delete()
    assert part is not None
    return float(part[0])


def doubled(x: jax.Array) -> jax.Array:
    """Twice an array, by a kernel."""

    def kernel(x_ref: jax.Ref, o_ref: jax.Ref) -> None:
        o_ref[...] = x_ref[...] * 2

    return pallas.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def scope() -> dict[str, Any]:
    x = jnp.ones((4, 4))
    return {
        "called_back": lambda v: jax.pure_callback(np.sin, v, v),
        "doubled": doubled,
        "jax": jax,
        "jnp": jnp,
        "Format": Format,
        "Layout": Layout,
        "x": x,
        "q": jnp.ones((1, 2, 1, 4)),
        "guarded": guarded,
        "kind_within_auto_axes": kind_within_auto_axes,
        "quiet": quiet,
        "warned": warned,
        "overflows": overflows,
        "refused_deleted": refused_deleted,
        "kept_by_a_shard": kept_by_a_shard,
        "unreduced": unreduced,
        "parts_of_a_sum": parts_of_a_sum,
        "lies_alike": lies_alike,
        "np": np,
        "host": np.arange(4.0, dtype=np.float32),
        "z": jnp.full(1, 1.001),
    }


CALLS = table("Calls")
LOOKS = [*table("Otherwise than in JAX"), *table("Where JAX is wrong")]
REFUSED = table("Options")  # the first heading of that name
KEPT = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.partition("## Accepted without effect")[2].partition("### Arguments")[0].splitlines()
    if line.startswith("| `")
]


def test_the_tables_are_found() -> None:
    assert len(CALLS) > 15 and len(LOOKS) > 10 and len(REFUSED) == len(ONE_VALUE) and len(KEPT) > 5


@pytest.mark.parametrize("row", CALLS, ids=lambda row: row[0])
def test_refused_calls(row: list[str]) -> None:
    (call,) = code(row[0])
    with pytest.raises(NotImplementedError):
        eval(call, scope())


@pytest.mark.parametrize("row", LOOKS, ids=lambda row: row[0][:40])
def test_looks(row: list[str]) -> None:
    (look,) = code(row[1])
    before = jax.config.values
    try:
        assert eval(look, scope())
    finally:
        for name, value in before.items():
            if jax.config.read(name) != value:
                jax.config.update(name, value)


def test_modules() -> None:
    assert {name for row in table("Modules") for name in code(row[0])} == set(ABSENT)
    refusing = {name for row in table("Modules whose functions refuse") for name in code(row[0])}
    assert refusing == {*REFUSING, "jaxlib.mlir"}


def test_options_that_have_one_value() -> None:
    assert [(code(name)[0], reason) for name, reason in REFUSED] == [
        (n, reason) for n, (_, reason) in ONE_VALUE.items()
    ]
    assert all(f"({default!r})" in row[0] for row, (default, _) in zip(REFUSED, ONE_VALUE.values(), strict=True))


def test_options_without_effect() -> None:
    said = {name: reason for names, reason in KEPT for name in code(names)}
    assert said == {name: reason for name, (_, reason) in NO_EFFECT.items()}


def test_arguments_without_effect() -> None:
    said = {name for row in table("Arguments") for name in code(row[0])}
    unread = {p for parameters in UNREAD.values() for p in parameters} | SCIPY_HINTS
    assert unread - said == set()
    functions = {name.rpartition(".")[2] for name in UNREAD}
    others = functions | {"scipy", "mesh_utils", "distributed.initialize", "zeros", "ones", "custom_vjp"}
    assert said - unread - others == set()


def test_links_and_names_of_modules() -> None:
    for target in re.findall(r"\]\(([\w.-]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists()


def test_gaps_are_gaps() -> None:
    gaps = PAGE.partition("## Gaps")[2]
    lacks = code(re.sub(r"\(use [^)]*\)", "", gaps.partition("- `lax` lacks")[2].partition(".\n")[0]))
    assert lacks and not [name for name in lacks if hasattr(jax.lax, name)]


# -- every refusal in the library ---------------------------------------------------------------------------------------------------

WAYS = re.compile(
    r"\b(use|pass|leave|call|take|make|give|compute|map|reshape|reshard|drop|set|sum|switch|run|move|cut|copy|cast|carry|write|wrap|"
    r"register|ask|gather|choose|define|say|provide|name|compile|open|look|pad|draw|add|split|divide|stack|convert|mark|print|fill|"
    r"reduce|combine|put|do|order|replace|step|place|raise|read|keep|has|only)\b",
    re.I,
)


def refusals() -> list[tuple[str, str]]:
    """Where NotImplementedError is raised, and the text that it is raised with."""
    found = []
    for path in sorted((ROOT / "src" / "shardwise").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Raise)
                and isinstance(node.exc, ast.Call)
                and ast.unparse(node.exc.func) == "NotImplementedError"
            ):
                texts = [
                    n.value
                    for a in node.exc.args
                    for n in ast.walk(a)
                    if isinstance(n, ast.Constant) and isinstance(n.value, str)
                ]
                found.append((f"{path.relative_to(ROOT / 'src')}:{node.lineno}", "".join(texts)))
    return found


def test_every_refusal_names_a_way_out() -> None:
    places = refusals()
    assert len(places) > 100
    assert [p for p in places if not WAYS.search(p[1]) and "base/options" not in p[0]] == []
