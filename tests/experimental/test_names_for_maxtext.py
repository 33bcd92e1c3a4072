"""Modules that large training programs import: where compiled code is kept, backends, versions, symbolic sizes, options of profiles."""

from __future__ import annotations

import pytest

import shardwise as jax
from shardwise import lib, profiler
from shardwise._src import lib as jaxlib
from shardwise.base import config
from shardwise.base.config import use_dialect
from shardwise.experimental.compilation_cache import compilation_cache
from shardwise.extend import backend
from shardwise.runtime.machine import kernel_store


def test_where_compiled_code_is_kept(tmp_path):
    before = config.jax_compilation_cache_dir
    own = config.shardwise_cache_dir
    try:
        config.update("shardwise_cache_dir", "")
        compilation_cache.set_cache_dir(str(tmp_path))
        assert kernel_store.folder() == str(tmp_path / "shardwise")
        compilation_cache.reset_cache()
        assert kernel_store.folder() != str(tmp_path / "shardwise")
    finally:
        config.update("jax_compilation_cache_dir", before)
        config.update("shardwise_cache_dir", own)


def test_backends():
    client = jax.devices()[0].client
    assert backend.get_backend() is backend.get_backend("cpu") is client
    assert backend.get_backend(client) is client and backend.backends() == {"cpu": client}
    assert backend.get_default_device() == jax.devices()[0]
    with jax.default_device(jax.devices()[2]):
        assert backend.get_default_device() == jax.devices()[2]
    with pytest.raises(RuntimeError, match="tpu"):
        backend.get_backend("tpu")
    with pytest.raises(NotImplementedError, match=r"devices\(\)"):
        backend.register_backend_factory("mine", lambda: None)


def test_what_is_compiled_is_forgotten():
    f = jax.jit(lambda x: x + 1)
    f(1.0)
    assert f._cache_size() == 1
    backend.clear_in_memory_compilation_cache()
    assert f._cache_size() == 0


@pytest.mark.parametrize(("dialect", "version"), [("seed", "0.5.3"), ("latest", "0.10.2")])
def test_versions(dialect, version):
    with use_dialect(dialect):
        assert lib.__version__ == jaxlib.__version__ == version
    with pytest.raises(AttributeError, match="xla_data"):
        _ = jaxlib.xla_data


@pytest.mark.parametrize("home", ["xla_client", "xla_extension", "_jax"])
def test_classes_of_jaxlib(home):
    classes = getattr(jaxlib, home)
    assert classes.Device is jax.Device and classes.NamedSharding is jax.sharding.NamedSharding
    assert isinstance(jax.numpy.ones(2), classes.ArrayImpl)
    error = classes.JaxRuntimeError if home == "_jax" else classes.XlaRuntimeError
    assert error is jax.errors.JaxRuntimeError
    if home != "xla_client":
        assert isinstance(jax.jit(lambda x: x), classes.PjitFunction)


def test_options_of_profiles(tmp_path):
    options = profiler.ProfileOptions()
    with profiler.trace(tmp_path, profiler_options=options):
        jax.jit(lambda x: x + 1)(1.0)
    assert list(tmp_path.rglob("*.trace.json.gz"))
    options.host_tracer_level = 3
    with pytest.raises(NotImplementedError, match=r"host_tracer_level=3.*leave it at its default"):
        profiler.start_trace(tmp_path, profiler_options=options)
    with pytest.raises(AttributeError):
        setattr(options, "host_tracing_level", 3)  # noqa: B010


def test_types_along_manual_axes():
    from shardwise.sharding import ManualAxisType

    kind = ManualAxisType(varying=frozenset({"x"}))
    assert not kind.empty and ManualAxisType().empty and kind == ManualAxisType(varying=frozenset({"x"}))
    assert kind.update(reduced=frozenset({"y"})).reduced == {"y"}
    with pytest.raises(ValueError, match="common mesh axes"):
        ManualAxisType(varying=frozenset({"x"}), unreduced=frozenset({"x"}))
    with pytest.raises(TypeError):
        kind.update(other=frozenset({"x"}))
    assert jax.ShapeDtypeStruct((2,), "float32", manual_axis_type=kind).vma == {"x"}
    with pytest.raises(NotImplementedError, match="give them by the spec"):
        jax.ShapeDtypeStruct((2,), "float32", manual_axis_type=ManualAxisType(reduced=frozenset({"x"})))
