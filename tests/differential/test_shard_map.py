"""Random collectives in random `shard_map` bodies: values, and the types that the body sees, are JAX's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differential.oracle import check, compare, worker
from tests.differential.programs import AXES, specs
from tests.differential.test_ops import few

MESHES = ((2, 4), (4, 2), (8,), (2, 2, 2), (2, 2))


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, str]:
    """The setting of a body and one collective call in it, on a block `x` whose dims are multiples of 8."""
    mesh = draw(st.sampled_from(MESHES))
    names = AXES[: len(mesh)]
    shape = draw(
        st.lists(st.sampled_from((8, 16)), min_size=1, max_size=2).map(lambda dims: tuple(8 * d for d in dims))
    )
    in_spec = draw(specs(shape, mesh))
    axes = draw(st.permutations(names).flatmap(lambda p: st.integers(1, len(p)).map(lambda n: tuple(p[:n]))))
    axis = repr(axes[0] if len(axes) == 1 else axes)
    n = math.prod(mesh[names.index(name)] for name in axes)
    dim = draw(st.integers(0, len(shape) - 1))
    single = repr(axes[0])
    size = mesh[names.index(axes[0])]
    order = draw(st.permutations(range(size)))
    pairs = list(enumerate(order))[: draw(st.integers(1, size))]
    call = draw(
        st.sampled_from(
            [
                f"lax.psum(x, {axis})",
                f"lax.pmean(x, {axis})",
                f"lax.pmax(x, {single})",
                f"lax.pmin(x, {axis})",
                f"(lax.pmax(2.5, {single}), lax.psum(jnp.asarray(2.0), {axis}), lax.pmean(3, {axis}))",
                f"lax.pcast(x, {axis}, to='varying')",
                f"lax.all_to_all(x.reshape({n}, -1), {axis}, 0, 1)",
                f"lax.psum((x, 1, x.sum()), {axis})",
                f"lax.all_gather(x, {axis})",
                f"lax.all_gather(x, {axis}, axis={dim}, tiled=True)",
                f"lax.psum_scatter(x, {single}, scatter_dimension={dim}, tiled=True)",
                f"lax.ppermute(x, {single}, {pairs})",
                f"lax.pshuffle(x, {single}, {list(order)})",
                f"lax.all_to_all(x, {single}, {dim}, 0, tiled=True)",
                f"lax.all_to_all(x.reshape({size}, -1), {single}, 0, 1)",
                f"x + lax.axis_index({axis})",
                f"x * lax.axis_size({single})",
                f"lax.psum(x * lax.axis_index({single}), {single})",
                f"jnp.sum(x, axis={dim}, keepdims=True)",
            ]
        )
    )
    setting = (
        f"mesh = mesh_of({mesh}, {names})\n"
        f"a = jax.device_put(data({shape}), NamedSharding(mesh, {draw(specs(shape, mesh))}))\n"
        f"in_spec = {in_spec}\nnames = {names}\n"
    )
    return setting, call


# A leading dim of 1 per device, joined over all axes, lets any block out: each device's value is compared.
BODY = """
def body(x):
    out = {call}
    for leaf in jax.tree.leaves(out):
        print(jax.typeof(leaf))
    return jax.tree.map(lambda y: jnp.asarray(y)[None], out)

f = jax.shard_map(body, mesh=mesh, in_specs=in_spec, out_specs=P(names), check_vma={check})
"""


@pytest.mark.parametrize("typed", [True, False])
def test_collectives(typed):
    @few
    @given(bodies())
    def law(case):
        setting, call = case
        compare(setting + BODY.format(call=call, check=typed) + "result = jax.jit(f)(a)", printed=True, indices=True)

    law()


@few
@given(bodies())
def test_eager_bodies(case):
    """Outside of jit a body computes the same, or is refused for the same reason."""
    setting, call = case
    program = setting + BODY.format(call=call, check=True)
    answers = [worker("shardwise", 8).run(program + f"result = {run}(a)") for run in ("f", "jax.jit(f)")]
    if "error" in answers[1]:
        assert answers[0]["error"]["classes"] == answers[1]["error"]["classes"]
    else:
        check(answers[0].get("result"), answers[1]["result"], "eager result", ["dtype", "weak_type", "type"], ulps=4)
