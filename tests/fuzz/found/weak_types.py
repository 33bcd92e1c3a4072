weak, strong = jnp.where(True, jnp.arange(4), 1.5), jnp.asarray([0.0, 1, 2, 3])
b = weak < 2
as_weak, as_strong = (lambda x: weak), (lambda x: strong)
i = jnp.uint8(1)
result = [
    # The first branch says whether the result is weakly typed: of cond, that for False.
    lax.cond(i > 0, as_weak, as_strong, 0), lax.cond(i > 0, as_strong, as_weak, 0),
    lax.switch(i, [as_weak, as_strong, as_strong], 0), lax.switch(i, [as_strong, as_weak, as_weak], 0),
    # An updated array is strongly typed, .at[] keeps its kind.
    lax.dynamic_update_slice(weak, weak, (i,)), lax.dynamic_update_slice_in_dim(weak, weak[:2], 1, 0),
    lax.dynamic_update_index_in_dim(weak, 1.0, 0, 0), weak.at[0].set(2.0), weak.at[1:2].set(weak[:1]),
    # Two bools promote to a strong one.
    b, ~b, b & b, b | b, b ^ b, b + b, b * b, b == b, b != b, b < b, b >= b, jnp.equal(b, b), jnp.not_equal(b, b), b & True,
    jnp.logical_and(b, b), jnp.logical_or(b, weak), jnp.logical_xor(weak, weak), jnp.logical_not(weak), jnp.logical_not(b),
    weak == weak, weak < weak, jnp.maximum(b, b), lax.bitwise_and(b, b), jnp.stack([b, b]), b.any(),
]
