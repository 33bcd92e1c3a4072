"""What the documents say beside their programs: old names, checks of each parameter, and errors that tell what to do."""

from __future__ import annotations

import importlib
import inspect
import sys

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental.pjit import pjit
from shardwise.sharding import GSPMDSharding, Mesh, NamedSharding, Sharding, devices
from shardwise.sharding import PartitionSpec as P

X = np.arange(8, dtype=np.float32)
DATA = np.arange(64, dtype=np.float32).reshape(8, 8)


def plus_one(x):
    return x + 1


def times(x, k):
    return x * k


@pytest.fixture(scope="module")
def mesh():
    return Mesh(np.array(devices()).reshape(2, 4), ("x", "y"))


@pytest.fixture(scope="module")
def blocks(mesh):
    """A sharding, and DATA as one array per device."""
    sharding = NamedSharding(mesh, P("x", "y"))
    index_map = sharding.addressable_devices_indices_map(DATA.shape)
    return sharding, [sw.device_put(DATA[index], device) for device, index in index_map.items()]


# -- one array type --------------------------------------------------------------------------------------------------------


def test_shards_under_their_old_names(mesh):
    x = sw.device_put(X, NamedSharding(mesh, P("x")))
    with pytest.warns(DeprecationWarning, match="addressable_shards"):
        shards = x.local_shards
    assert [shard.device for shard in shards] == devices()
    with pytest.warns(DeprecationWarning, match="addressable_data"):
        assert x.local_data(7).tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize(
    "module, name, told",
    [
        (module, name, told)
        for name, told in (
            ("DeviceArray", "len(x.sharding.device_set) == 1"),
            ("ShardedDeviceArray", "len(x.sharding.device_set) > 1"),
            ("GlobalDeviceArray", "not x.is_fully_addressable"),
        )
        for module in ("", ".numpy", ".interpreters.xla", ".interpreters.pxla")
    ]
    + [
        (".interpreters.pxla", "make_sharded_device_array", "make_array_from_single_device_arrays with a PmapSharding"),
        (".interpreters.xla", "make_device_array", "make_array_from_single_device_arrays"),
    ],
)
def test_old_types_say_what_replaces_them(module, name, told):
    with pytest.raises(AttributeError, match=f"{name} is gone") as caught:
        getattr(importlib.import_module(f"shardwise{module}"), name)
    assert told in str(caught.value)


def test_parts_of_a_pmap_sharding_under_their_old_path():
    from shardwise.interpreters.pxla import ShardingSpec

    assert isinstance(sw.sharding.PmapSharding.default((8, 2)).sharding_spec, ShardingSpec)


def test_arrays_of_others_are_refused_by_name():
    class DeviceArray:
        shape, dtype = (8,), np.dtype("float32")

    calls = (sw.jit(plus_one), pjit(plus_one), jnp.sin, sw.device_put, lambda x: jnp.ones(8) + x)
    for call in calls:
        with pytest.raises(TypeError, match="DeviceArray"):
            call(DeviceArray())


def test_an_array_on_one_device_is_like_any_other():
    one = sw.device_put(X, NamedSharding(Mesh(np.array(devices()[:1]), ("x",)), P("x")))
    plain = jnp.asarray(X)
    assert type(one) is type(plain) and repr(one) == repr(plain) and one.devices() == plain.devices()
    assert one.sharding.is_equivalent_to(plain.sharding, 1)
    assert [shard.index for shard in one.addressable_shards] == [shard.index for shard in plain.addressable_shards]


# -- meshes and shardings ----------------------------------------------------------------------------------------------------


class Backwards(Sharding):
    """The first four devices in order, which hold the rows from the last to the first: no grid of them does that."""

    @property
    def _device_assignment(self):
        return tuple(devices()[:4])

    def devices_indices_map(self, global_shape):
        rows = global_shape[0] // 4
        return {d: (slice((3 - i) * rows, (4 - i) * rows),) for i, d in enumerate(devices()[:4])}


def test_computing_with_a_free_form_sharding():
    sharding = Backwards()
    x = sw.device_put(DATA, sharding)
    assert [shard.data[0, 0].item() for shard in x.addressable_shards] == [48, 32, 16, 0]
    for y in (jnp.sin(x), sw.jit(jnp.sin)(x), sw.jit(jnp.sin, in_shardings=sharding)(x)):
        assert isinstance(y.sharding, GSPMDSharding) and y.sharding.device_list == sharding.device_list
        np.testing.assert_array_equal(y, jnp.sin(DATA))
    assert x.sum() == DATA.sum()
    assert sw.jit(plus_one, out_shardings=sharding)(x).sharding is sharding


def test_devices_scattered_over_the_mesh():
    order = np.array(devices())[[0, 5, 2, 7, 4, 1, 6, 3]].reshape(2, 4)
    x = sw.device_put(DATA, NamedSharding(Mesh(order, ("x", "y")), P("x", "y")))
    y = sw.jit(lambda x: 2 * x @ x.T)(x)
    np.testing.assert_array_equal(y, 2 * DATA @ DATA.T)
    assert [shard.device for shard in (x + 1).addressable_shards] == list(order.flat)


def test_text_of_an_indivisible_dimension():
    mesh = Mesh(np.array(devices()).reshape(2, 2, 2), ("x", "y", "chips"))
    with mesh, pytest.raises(ValueError) as caught:
        pjit(plus_one, in_shardings=P(("x", "y", "chips")))(np.arange(4))
    assert str(caught.value) == (
        "One of pjit arguments was given the sharding of NamedSharding(mesh={'x': 2, 'y': 2, 'chips': 2}, "
        "partition_spec=PartitionSpec(('x', 'y', 'chips'),)), which implies that the global size of its dimension 0 should be "
        "divisible by 8, but it is equal to 4"
    )


# -- make_array_from_single_device_arrays ----------------------------------------------------------------------------------


def test_assembled_arrays(blocks):
    sharding, arrays = blocks
    for given in (arrays, tuple(reversed(arrays))):
        whole = sw.make_array_from_single_device_arrays(DATA.shape, sharding, given)
        assert whole.sharding is sharding and whole.committed and whole.dtype == np.float32
        np.testing.assert_array_equal(whole, DATA)
    assert sw.make_array_from_single_device_arrays(DATA.shape, sharding, arrays, dtype=np.float32).shape == DATA.shape


@pytest.mark.parametrize(
    "change, error, text",
    [
        (
            lambda given: dict(shape=(8, 16)),
            ValueError,
            r"Expected shard shape \(4, 4\) doesn't match .* shape \(4, 2\)",
        ),
        (lambda given: dict(shape=(8,)), ValueError, "rank at least 2"),
        (lambda given: dict(arrays=given[:5]), ValueError, "Expected 8 per-device arrays .* but got 5"),
        (lambda given: dict(sharding=P("x")), TypeError, "PartitionSpec"),
        (lambda given: dict(arrays={0: given}), TypeError, "Sequence .list or tuple.*dict"),
        (lambda given: dict(arrays=iter(given)), TypeError, "Sequence .list or tuple.*iterator"),
        (lambda given: dict(arrays=[given[0]] * 8), ValueError, "distinct devices"),
        (lambda given: dict(arrays=[*given[:7], given[7][:1]]), ValueError, "Expected shard shape"),
        (lambda given: dict(arrays=[*given[:7], given[7].astype(int)]), ValueError, "matching dtypes"),
        (lambda given: dict(arrays=[np.ones((4, 2))] * 8), TypeError, "ndarray"),
        (lambda given: dict(dtype=np.int32), ValueError, "dtype=int32 and shard dtype=float32"),
        (lambda given: dict(arrays=[]), ValueError, "`dtype` must be provided"),
        (lambda given: dict(arrays=[], dtype=np.float32), ValueError, "Expected 8 per-device arrays"),
    ],
)
def test_parts_that_do_not_fit(blocks, change, error, text):
    sharding, arrays = blocks
    arguments = dict(shape=DATA.shape, sharding=sharding, arrays=arrays) | change(arrays)
    with pytest.raises(error, match=text):
        sw.make_array_from_single_device_arrays(**arguments)


# -- pjit, parameter by parameter ------------------------------------------------------------------------------------------


def test_signature_of_pjit():
    parameters = inspect.signature(pjit).parameters
    assert (
        list(parameters)[:12]
        == (
            "fun in_shardings out_shardings static_argnums static_argnames donate_argnums donate_argnames keep_unused device backend "
            "inline abstracted_axes"
        ).split()
    )
    assert repr(parameters["in_shardings"].default) == repr(parameters["out_shardings"].default) == "UnspecifiedValue"
    assert type(pjit(plus_one)) is type(sw.jit(plus_one))


def test_in_shardings_as_prefix_and_tree(mesh):
    s = NamedSharding(mesh, P("x"))
    f = pjit(lambda d, e: {**d, "e": e}, in_shardings=(s, None))
    out = f({"a": X, "b": X}, 1)
    assert (out["a"].sharding, out["b"].sharding) == (s, s)
    with pytest.raises(ValueError, match=r"wrong length: .* length 1 for an args tuple of length 2"):
        pjit(times, in_shardings=(s,))(X, X)
    with pytest.raises(ValueError, match="does not support kwargs when in_shardings"):
        pjit(plus_one, in_shardings=s)(x=X)


def test_none_means_free_without_a_mesh_and_replicated_within(mesh):
    x = sw.device_put(X, NamedSharding(mesh, P("x")))
    f = pjit(plus_one, in_shardings=None, out_shardings=None)
    assert f(x).sharding == x.sharding
    assert f(X).devices() == {devices()[0]}
    with mesh:
        assert f(X).sharding == NamedSharding(mesh, P())
        with pytest.raises(ValueError, match=r"does not match (?s:.)*PartitionSpec\(\)(?s:.)*PartitionSpec\('x',\)"):
            f(x)


def test_specs_resolve_in_the_mesh_of_the_call(mesh):
    f = pjit(plus_one, in_shardings=P("x"), out_shardings=P("x"))
    with pytest.raises(RuntimeError, match=r"^pjit requires a non-empty mesh"):
        f(X)
    other = Mesh(np.array(devices()).reshape(4, 2), ("x", "y"))
    for current, size in ((mesh, 4), (other, 2), (mesh, 4)):
        with current:
            assert f(X).addressable_shards[0].data.shape == (size,)


@pytest.mark.parametrize(
    "spec, text",
    [
        (P("x", "y"), "only valid for values of rank at least 2, but was applied to a value of rank 1"),
        (P("z"), "z .*not found in mesh"),
        (P(("x", "x")), "duplicate entries for `x`"),
    ],
)
def test_specs_that_do_not_fit(mesh, spec, text):
    with mesh:
        for option in ("in_shardings", "out_shardings"):
            with pytest.raises(Exception, match=text):
                pjit(plus_one, **{option: spec})(X)


def test_static_arguments():
    seen = []

    def f(x, k):
        seen.append(type(k))
        return x * k

    g = pjit(f, static_argnums=1)
    assert [g(X, k)[1].item() for k in (2, 2, 3)] == [2, 2, 3] and seen == [int, int]
    g(X, k=3)
    pjit(f, static_argnames="k")(X, 5)  # the other half of the pair comes from the signature
    assert seen == [int] * 4
    pjit(f, static_argnums=(), static_argnames="k")(X, 2)  # both given: nothing is inferred
    assert seen[4] is not int
    assert pjit(lambda x, mode: x if mode == "same" else -x, static_argnames="mode")(X, mode="same")[1] == 1


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: pjit(times, static_argnums=1)(X, [1]), ValueError, "Non-hashable static arguments"),
        (lambda: pjit(times, static_argnums=5), ValueError, "only accepts 2 positional"),
        (lambda: pjit(times, static_argnames="q"), ValueError, "'q'.* static_argnames"),
        (lambda: pjit(times, donate_argnames="q"), ValueError, "'q'.* donate_argnames"),
        (lambda: pjit(times)(X, "k"), TypeError, "class 'str'.* path k"),
        (
            lambda: pjit(times, static_argnums=0, donate_argnums=0),
            ValueError,
            "static_argnames and donate_argnames cannot intersect",
        ),
        (
            lambda: pjit(times, static_argnames="k", donate_argnums=1),
            ValueError,
            "static_argnames and donate_argnames cannot intersect",
        ),
        (lambda: pjit(plus_one, in_axis_resources=P("x")), TypeError, "in_axis_resources.* in_shardings"),
        (lambda: pjit(plus_one, out_axis_resources=P("x")), TypeError, "out_axis_resources.* out_shardings"),
        (lambda: pjit(plus_one, backend="gpu")(X), RuntimeError, "gpu"),
        (lambda: pjit(plus_one, abstracted_axes=({0: "n"},)), NotImplementedError, "Drop the argument"),
    ],
)
@pytest.mark.filterwarnings("ignore:backend and device:DeprecationWarning")
def test_options_that_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize(
    "options, by_position, by_name",
    [
        ({}, (False, False), (False, False)),
        ({"donate_argnums": (0, 1)}, (True, True), (True, True)),
        ({"donate_argnums": 1}, (False, True), (False, True)),
        ({"donate_argnames": "y"}, (False, True), (False, True)),
        ({"donate_argnums": (), "donate_argnames": "y"}, (False, False), (False, True)),
    ],
)
def test_what_is_donated(options, by_position, by_name):
    for named, want in ((False, by_position), (True, by_name)):
        f = pjit(lambda x, y: (x + 1, y + 1), **options)
        x, y = jnp.arange(8.0), jnp.arange(8.0) + 1
        f(x, y=y) if named else f(x, y)
        assert (x.is_deleted(), y.is_deleted()) == want


def test_donated_arrays_are_gone():
    x = jnp.arange(8.0)
    pjit(plus_one, donate_argnums=0)(x)
    assert not any(x is alive for alive in sw.live_arrays())
    for use in (plus_one, str, np.asarray, sw.jit(plus_one), lambda x: x.addressable_shards):
        with pytest.raises(RuntimeError, match=r"Array has been deleted with shape=float32\[8\]\."):
            use(x)
    x = jnp.arange(8.0)
    with pytest.raises(RuntimeError, match="same buffer twice"):
        pjit(times, donate_argnums=(0, 1))(x, x)
    with pytest.warns(UserWarning, match=r"donated buffers were not usable: float32\[8\]"):
        pjit(jnp.sum, donate_argnums=0)(jnp.arange(8.0))


def test_repeated_calls_skip_python_level_work(mesh):
    f = sw.jit(lambda batch, scale: {"out": batch * scale})
    batch = sw.device_put(X, NamedSharding(mesh, P("x")))
    scale = jnp.float32(2)
    for _ in range(2):
        f(batch, scale)
    called = []
    sys.setprofile(lambda frame, event, arg: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        f(batch, scale)
    finally:
        sys.setprofile(None)
    assert len(called) <= 12, called


def test_unused_arguments_may_live_anywhere_unless_kept():
    here, there = (sw.device_put(X, device) for device in devices()[:2])
    first = lambda x, y: x + 1  # noqa: E731
    assert pjit(first)(here, there).devices() == {devices()[0]}
    with pytest.raises(ValueError, match="incompatible devices"):
        pjit(first, keep_unused=True)(here, there)


@pytest.mark.parametrize("options, place", [({"device": 3}, 3), ({"backend": "cpu"}, 0)])
def test_device_and_backend_warn_and_place(options, place):
    if "device" in options:
        options = {"device": devices()[options["device"]]}
    with pytest.warns(DeprecationWarning, match="device_put"):
        assert pjit(plus_one, **options)(X).devices() == {devices()[place]}


def test_inlined_functions_leave_no_call():
    texts = [str(sw.make_jaxpr(pjit(plus_one, inline=inline))(X)) for inline in (True, False)]
    assert [text.count("plus_one") for text in texts] == [0, 1]


def test_from_gda_says_to_drop_it():
    with pytest.raises(ImportError, match=r"leave in_shardings out.*host_local_array_to_global_array"):
        from shardwise.experimental.pjit import FROM_GDA  # type: ignore[attr-defined]  # noqa: F401
