"""Programs that use keys of random numbers, once or twice: each takes the library, shardwise or JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CASES: dict[str, Callable[[Any], Any]] = {}


def case(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    CASES[function.__name__] = function
    return function


def twice(function: Callable[[Any, Any], Any], name: str) -> None:
    """The function of (library, key), called two times with one key."""

    def run(lib: Any) -> None:
        key = lib.random.key(0)
        function(lib, key)
        function(lib, key)

    CASES[f"twice {name}"] = run


for name in (
    "normal",
    "uniform",
    "bits",
    "split",
    "exponential",
    "gumbel",
    "cauchy",
    "laplace",
    "rademacher",
    "logistic",
):
    twice(lambda lib, key, name=name: getattr(lib.random, name)(key), name)
twice(lambda lib, key: lib.random.gamma(key, 2.0), "gamma")
twice(lambda lib, key: lib.random.beta(key, 2.0, 3.0), "beta")
twice(lambda lib, key: lib.random.dirichlet(key, lib.numpy.ones(3)), "dirichlet")
twice(lambda lib, key: lib.random.poisson(key, 2.0), "poisson")
twice(lambda lib, key: lib.random.binomial(key, 5.0, 0.5), "binomial")
twice(lambda lib, key: lib.random.randint(key, (3,), 0, 9), "randint")
twice(lambda lib, key: lib.random.permutation(key, 5), "permutation")
twice(lambda lib, key: lib.random.choice(key, 5, (2,)), "choice")
twice(lambda lib, key: lib.random.choice(key, 5, (2,), replace=False), "choice without replacement")
twice(lambda lib, key: lib.random.categorical(key, lib.numpy.ones(3)), "categorical")
twice(lambda lib, key: lib.random.bernoulli(key), "bernoulli")
twice(lambda lib, key: lib.random.truncated_normal(key, -1.0, 1.0), "truncated_normal")
twice(lambda lib, key: lib.random.multivariate_normal(key, lib.numpy.zeros(2), lib.numpy.eye(2)), "multivariate_normal")
twice(lambda lib, key: lib.random.orthogonal(key, 2), "orthogonal")
twice(lambda lib, key: lib.random.t(key, 3.0), "t")
twice(lambda lib, key: lib.random.ball(key, 2), "ball")
twice(lambda lib, key: lib.random.fold_in(key, 1), "fold_in")
twice(lambda lib, key: lib.random.clone(key), "clone")
twice(lambda lib, key: lib.random.key_data(key), "key_data")
twice(lambda lib, key: lib.random.key_impl(key), "key_impl")
twice(lambda lib, key: lib.random.normal(lib.random.clone(key)), "normal of clone")
twice(lambda lib, key: lib.random.wrap_key_data(lib.random.key_data(key)), "wrap of data")
twice(lambda lib, key: lib.random.normal(lib.random.wrap_key_data(lib.random.key_data(key))), "normal of wrap of data")
twice(lambda lib, key: repr(key), "repr")
twice(lambda lib, key: key == key, "eq")
twice(lambda lib, key: lib.numpy.stack([key, key]), "stack")
twice(lambda lib, key: key.reshape(1), "reshape")
twice(lambda lib, key: key[None], "newaxis")
twice(lambda lib, key: lib.device_put(key, lib.devices()[0]), "device_put")
twice(lambda lib, key: key.block_until_ready(), "block_until_ready")
twice(lambda lib, key: lib.jit(lib.random.normal)(key), "jit normal")
twice(lambda lib, key: lib.jit(lambda k: 1.0)(key), "jit of nothing")
twice(lambda lib, key: lib.jit(lambda k: k)(key), "jit of identity")
twice(lambda lib, key: lib.jit(lib.random.fold_in)(key, 1), "jit fold_in")
twice(lambda lib, key: lib.vmap(lib.random.normal)(lib.random.split(lib.random.clone(key), 3)), "vmap over split")
twice(lambda lib, key: lib.grad(lambda x: x * lib.random.normal(key))(1.0), "grad")
twice(lambda lib, key: lib.eval_shape(lib.random.normal, key), "eval_shape")
twice(lambda lib, key: lib.make_jaxpr(lib.random.normal)(key), "make_jaxpr")
twice(lambda lib, key: lib.random.normal(lib.random.PRNGKey(0)), "raw key")
twice(lambda lib, key: lib.jit(lambda x: x + lib.random.normal(key))(1.0), "captured")
twice(lambda lib, key: lib.lax.cond(True, lambda k: lib.random.normal(k), lambda k: 0.0, key), "cond")
twice(lambda lib, key: lib.checkpoint(lib.random.normal)(key), "checkpoint")


@case
def words_are_not_followed(lib: Any) -> None:
    key = lib.random.PRNGKey(0)
    lib.random.normal(key)
    lib.random.normal(key)


@case
def split_then_use(lib: Any) -> None:
    key = lib.random.key(0)
    lib.random.split(key)
    lib.random.normal(key)


@case
def use_then_split(lib: Any) -> None:
    key = lib.random.key(0)
    lib.random.normal(key)
    lib.random.split(key)


@case
def use_then_fold_in(lib: Any) -> None:
    key = lib.random.key(0)
    lib.random.normal(key)
    lib.random.normal(lib.random.fold_in(key, 1))


@case
def use_then_clone(lib: Any) -> None:
    key = lib.random.key(0)
    lib.random.normal(key)
    lib.random.normal(lib.random.clone(key))


@case
def carry_on(lib: Any) -> None:
    key = lib.random.key(0)
    for _ in range(3):
        key, sub = lib.random.split(key)
        lib.random.normal(sub)


@case
def unpacked_and_used_twice(lib: Any) -> None:
    a, _ = lib.random.split(lib.random.key(0))
    lib.random.normal(a)
    lib.random.normal(a)


@case
def parts_of_a_used_array(lib: Any) -> None:
    keys = lib.random.split(lib.random.key(0))
    lib.vmap(lib.random.normal)(keys)
    lib.random.normal(keys[0])


@case
def slices_of_a_used_array(lib: Any) -> None:
    keys = lib.random.split(lib.random.key(0), 4)
    lib.vmap(lib.random.normal)(keys)
    lib.vmap(lib.random.normal)(keys[1:3])


@case
def items_of_an_array(lib: Any) -> None:
    keys = lib.random.split(lib.random.key(0))
    lib.random.normal(keys[0])
    lib.random.normal(keys[1])


@case
def the_same_item_twice(lib: Any) -> None:
    keys = lib.random.split(lib.random.key(0))
    lib.random.normal(keys[0])
    lib.random.normal(keys[0])


@case
def an_item_then_the_array(lib: Any) -> None:
    keys = lib.random.split(lib.random.key(0))
    lib.random.normal(keys[0])
    lib.vmap(lib.random.normal)(keys)


@case
def returned_after_use(lib: Any) -> None:
    @lib.jit
    def f(k: Any) -> Any:
        return k, lib.random.normal(k)

    k, _ = f(lib.random.key(0))
    lib.random.normal(k)


@case
def returned_unused(lib: Any) -> None:
    k, _ = lib.jit(lambda k: (k, 1.0))(lib.random.key(0))
    lib.random.normal(k)


@case
def returned_from_split(lib: Any) -> None:
    k = lib.jit(lambda k: lib.random.split(k)[0])(lib.random.key(0))
    lib.random.normal(k)


@case
def used_in_jit_then_eagerly(lib: Any) -> None:
    key = lib.random.key(0)
    lib.jit(lib.random.normal)(key)
    lib.random.normal(key)


@case
def reshaped_after_use(lib: Any) -> None:
    key = lib.random.key(0)
    lib.random.normal(key)
    lib.random.normal(key.reshape(1)[0])


@case
def moved_after_use(lib: Any) -> None:
    key = lib.random.key(0)
    lib.random.normal(key)
    lib.random.normal(lib.device_put(key, lib.devices()[0]))


@case
def stacked_then_used(lib: Any) -> None:
    a, b = lib.random.split(lib.random.key(0))
    lib.vmap(lib.random.normal)(lib.numpy.stack([a, b]))
    lib.random.normal(a)


@case
def broadcast_then_used(lib: Any) -> None:
    key = lib.random.key(0)
    lib.vmap(lib.random.normal)(lib.numpy.broadcast_to(key, (3,)))
    lib.random.normal(key)


def within(function: Callable[[Any, Any], Any], name: str) -> None:
    """The function of (library, key), compiled."""
    CASES[f"jit {name}"] = lambda lib: lib.jit(lambda key: function(lib, key))(lib.random.key(0))


within(lambda lib, k: lib.random.normal(k) + lib.random.uniform(k), "twice")
within(lambda lib, k: lib.random.normal(k) + lib.random.normal(lib.random.split(k)[0]), "use and split")
within(
    lambda lib, k: lib.random.normal(lib.random.fold_in(k, 0)) + lib.random.normal(lib.random.fold_in(k, 1)), "folds"
)
within(lambda lib, k: lib.random.normal(k) + lib.random.normal(lib.random.clone(k)), "clone")
within(lambda lib, k: [lib.random.normal(x) for x in lib.random.split(k, 3)], "unpacked")
within(
    lambda lib, k: (lambda ks: lib.random.normal(ks[0]) + lib.random.normal(ks[1]))(lib.random.split(k)), "two items"
)
within(
    lambda lib, k: (lambda ks: lib.random.normal(ks[0]) + lib.random.normal(ks[0]))(lib.random.split(k)),
    "one item twice",
)
within(
    lambda lib, k: (lambda ks: lib.vmap(lib.random.normal)(ks[:2]).sum() + lib.vmap(lib.random.normal)(ks[2:]).sum())(
        lib.random.split(k, 4)
    ),
    "two slices",
)
within(
    lambda lib, k: (lambda ks: lib.vmap(lib.random.normal)(ks[:3]).sum() + lib.vmap(lib.random.normal)(ks[2:]).sum())(
        lib.random.split(k, 4)
    ),
    "overlapping slices",
)
within(
    lambda lib, k: (lambda ks: lib.vmap(lib.random.normal)(ks).sum() + lib.random.normal(ks[0]))(lib.random.split(k)),
    "all, then one",
)
within(
    lambda lib, k: lib.lax.scan(lambda c, _: (lib.random.split(c)[0], lib.random.bits(c)), k, None, length=2),
    "scan twice",
)
within(lambda lib, k: lib.lax.scan(lambda c, _: (c, lib.random.bits(c)), k, None, length=2), "scan carry")
within(lambda lib, k: lib.lax.scan(lambda c, _: (c + 1, lib.random.bits(k)), 0, None, length=2), "scan const")
within(lambda lib, k: lib.lax.scan(lambda c, x: (c, lib.random.bits(x)), 0, lib.random.split(k, 3)), "scan xs")
within(
    lambda lib, k: lib.lax.scan(
        lambda c, _: (lambda a: (a[0], lib.random.bits(a[1])))(lib.random.split(c)), k, None, length=2
    ),
    "scan right",
)
within(
    lambda lib, k: lib.lax.scan(lambda c, x: (c, lib.random.bits(lib.random.fold_in(k, x))), 0, lib.numpy.arange(3)),
    "scan folds",
)
within(lambda lib, k: lib.lax.fori_loop(0, 3, lambda i, c: c + lib.random.normal(k), 0.0), "fori const")
within(
    lambda lib, k: lib.lax.fori_loop(0, 3, lambda i, c: c + lib.random.normal(lib.random.fold_in(k, i)), 0.0),
    "fori folds",
)
within(
    lambda lib, k: lib.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, lib.random.split(c[1])[0]), (0, k)),
    "while right",
)
within(lambda lib, k: lib.lax.while_loop(lambda c: c < 3, lambda c: c + lib.random.uniform(k) + 1, 0.0), "while const")
within(lambda lib, k: lib.lax.while_loop(lambda c: lib.random.uniform(k) < c, lambda c: c - 1, 0.0), "while cond const")
within(
    lambda lib, k: lib.lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + lib.random.uniform(c[1]) + 1, c[1]), (0.0, k)
    ),
    "while carry",
)
within(
    lambda lib, k: lib.lax.while_loop(
        lambda c: lib.random.uniform(c[1]) < c[0], lambda c: (c[0] - 1, lib.random.split(c[1])[0]), (0.0, k)
    ),
    "while both",
)
within(lambda lib, k: lib.lax.cond(True, lib.random.normal, lambda k: 0.0, k), "cond")
within(lambda lib, k: lib.lax.cond(True, lib.random.normal, lambda k: 0.0, k) + lib.random.normal(k), "cond, then use")
within(lambda lib, k: lib.lax.cond(True, lib.random.normal, lib.random.uniform, k), "cond both")
within(
    lambda lib, k: lib.lax.switch(
        0, [lambda k: 0.0, lambda k: 1.0, lambda k: lib.random.normal(k) + lib.random.normal(k)], k
    ),
    "switch with a bad branch",
)
within(
    lambda lib, k: lib.random.normal(
        lib.lax.cond(True, lambda k: lib.random.split(k)[0], lambda k: lib.random.split(k)[1], k)
    ),
    "cond gives",
)
within(lambda lib, k: lib.jit(lib.random.normal)(k) + lib.jit(lib.random.normal)(k), "nested twice")
within(lambda lib, k: lib.checkpoint(lib.random.normal)(k), "checkpoint")
within(lambda lib, k: lib.checkpoint(lib.random.normal)(k) + lib.random.normal(k), "checkpoint, then use")
within(
    lambda lib, k: lib.grad(lib.checkpoint(lambda x: lib.numpy.sin(x) * lib.random.normal(k)))(1.0),
    "grad of checkpoint",
)
within(lambda lib, k: lib.vmap(lambda x: x + lib.random.normal(k))(lib.numpy.ones(3)), "vmap over other")
within(lambda lib, k: lib.vmap(lambda x: lib.random.normal(k))(lib.numpy.ones(3)), "vmap of const")
within(lambda lib, k: lib.vmap(lib.random.normal)(lib.random.split(k, 3)), "vmap over keys")
within(
    lambda lib, k: lib.vmap(lambda k: lib.random.normal(k) + lib.random.normal(k))(lib.random.split(k, 3)), "vmap twice"
)
within(lambda lib, k: lib.random.normal(k.reshape(1)[0]) + lib.random.normal(k), "reshaped")
within(lambda lib, k: lib.random.normal(lib.numpy.broadcast_to(k, (3,))[0]) + lib.random.normal(k), "broadcast")
within(lambda lib, k: lib.random.bits(lib.numpy.stack([k, k])[0]), "stack of one")
within(
    lambda lib, k: lib.vmap(lib.random.bits)(lib.numpy.concatenate([lib.random.split(k), lib.random.split(k)])),
    "joined",
)
within(lambda lib, k: lib.vmap(lib.random.bits)(lib.random.split(k, 4).T.reshape(2, 2).T.reshape(4)), "transposed")
within(
    lambda lib, k: (
        lib.random.bits(lib.lax.with_sharding_constraint(k, lib.sharding.SingleDeviceSharding(lib.devices()[0])))
        + lib.random.bits(k)
    ),
    "constrained",
)
within(lambda lib, k: lib.random.bits(lib.numpy.where(True, k, lib.random.clone(k))), "where")
within(lambda lib, k: lib.random.bits(lib.random.split(k).at[0].set(lib.random.key(1))[0]), "at set")
within(
    lambda lib, k: lib.random.bits(lib.lax.dynamic_index_in_dim(lib.random.split(k), 1, keepdims=False)),
    "dynamic index",
)
within(lambda lib, k: lib.debug.print("{}", lib.random.key_data(k)) or lib.random.bits(k), "debug print")

# Numbers that nobody uses.
within(lambda lib, k: (lib.random.split(k), lib.random.normal(k))[1], "split for nothing")
within(lambda lib, k: (lib.random.uniform(k), lib.random.normal(k))[1], "drawn for nothing")
within(lambda lib, k: (lib.random.fold_in(k, 1), lib.random.normal(k))[1], "folded for nothing")
within(
    lambda lib, k: lib.jit(lambda k: (lib.random.uniform(k), 1.0)[1])(k) + lib.random.normal(k), "nested for nothing"
)
within(
    lambda lib, k: lib.lax.scan(lambda c, _: (c, (lib.random.uniform(k), c)[1]), 0.0, None, length=2),
    "scan for nothing",
)
within(
    lambda lib, k: (
        lib.lax.cond(True, lambda k: (lib.random.uniform(k), 0.0)[1], lambda k: 0.0, k) + lib.random.normal(k)
    ),
    "cond for nothing",
)
