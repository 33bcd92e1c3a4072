"""Settings: values, overrides per thread, and the token that names their combination."""

from __future__ import annotations

import subprocess
import sys
import threading
import timeit
from pathlib import Path

import pytest

import shardwise
from shardwise.base import config, errors
from shardwise.base import config as config_object
from shardwise.base.config import (
    Setting,
    checking_leaks,
    context_token,
    debug_infs,
    debug_nans,
    default_device,
    default_matmul_precision,
    disable_jit,
    disable_x64,
    enable_checks,
    enable_x64,
    explain_cache_misses,
    legacy_prng_key,
    log_compiles,
    no_tracing,
    numpy_dtype_promotion,
    numpy_rank_promotion,
    on_reshard,
    transfer_guard,
    transfer_guard_device_to_host,
    transfer_guard_host_to_device,
    use_dialect,
)

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def restored():
    before = config.values
    yield
    for name, value in before.items():
        config.setting(name).set_global(value)


def run(code, **environment):
    program = [sys.executable, "-c", "from shardwise.base import config\n" + code]
    return subprocess.run(
        program, env={"PYTHONPATH": str(SOURCE), **environment}, capture_output=True, text=True, timeout=60
    )


def test_unknown_options_are_attribute_errors():
    with pytest.raises(AttributeError, match="Unrecognized config option: nope"):
        config.update("nope", 1)
    with pytest.raises(AttributeError, match="Unrecognized config option: nope"):
        _ = config.nope
    with pytest.raises(AttributeError, match="Unrecognized config option: nope"):
        config.read("nope")


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("jax_enable_x64", "foo", TypeError),
        ("jax_numpy_dtype_promotion", "foo", ValueError),
        ("jax_numpy_rank_promotion", None, ValueError),
        ("jax_default_matmul_precision", "foo", ValueError),
        ("jax_transfer_guard", "foo", ValueError),
        ("jax_num_cpu_devices", "8", TypeError),
        ("jax_array", False, ValueError),
        ("shardwise_dialect", "old", ValueError),
        ("shardwise_on_reshard", "maybe", ValueError),
        ("jax_platforms", 3, TypeError),
    ],
)
def test_values_that_an_option_does_not_take(name, value, error):
    before = config.read(name)
    with pytest.raises(error, match=name):
        config.update(name, value)
    assert config.read(name) == before


def test_update_read_and_attribute(restored):
    assert config.jax_enable_x64 is False and config.x64 is False
    config.update("jax_enable_x64", True)
    assert config.jax_enable_x64 is True and config.x64 and config.read("jax_enable_x64")
    assert config.values["jax_enable_x64"] is True
    with enable_x64(False):
        assert not config.x64 and config.read("jax_enable_x64")


def test_the_old_array_types_are_gone():
    config.update("jax_array", True)
    with pytest.raises(ValueError, match="are gone"):
        config.update("jax_array", False)


def test_partitionable_random_bits_cannot_be_turned_off():
    with pytest.warns(UserWarning, match="never depend on the sharding"):
        config.update("jax_threefry_partitionable", False)
    assert config.jax_threefry_partitionable is True


def test_options_without_effect_say_so():
    with pytest.warns(UserWarning, match="no effect"):
        config.update("jax_persistent_cache_min_entry_size_bytes", 1)
    assert config.jax_persistent_cache_min_entry_size_bytes == 1 and config.x64_enabled is False
    with enable_checks(True), legacy_prng_key("error"):
        assert config.jax_enable_checks and config.jax_legacy_prng_key == "error"


def test_no_tracing_refuses_what_is_not_compiled():
    f = shardwise.jit(lambda x: x + 1)
    f(1)
    with no_tracing():
        f(2)
        with pytest.raises(RuntimeError, match="no_tracing is set"):
            f(1.0)


def test_dialect_switch(restored):
    assert not config.latest and config.dialect.name == "seed"
    with use_dialect("latest"):
        assert config.latest and config.dialect.memory_kinds == ("device", "pinned_host", "unpinned_host")
    assert not config.latest


OVERRIDES = [
    (enable_x64(), "jax_enable_x64", True),
    (enable_x64(True), "jax_enable_x64", True),
    (default_device("cpu"), "jax_default_device", "cpu"),
    (disable_jit(), "jax_disable_jit", True),
    (debug_nans(True), "jax_debug_nans", True),
    (debug_infs(True), "jax_debug_infs", True),
    (log_compiles(), "jax_log_compiles", True),
    (explain_cache_misses(), "jax_explain_cache_misses", True),
    (checking_leaks(), "jax_check_tracer_leaks", True),
    (numpy_dtype_promotion("strict"), "jax_numpy_dtype_promotion", "strict"),
    (numpy_rank_promotion("raise"), "jax_numpy_rank_promotion", "raise"),
    (default_matmul_precision("float32"), "jax_default_matmul_precision", "float32"),
    (transfer_guard_host_to_device("log"), "jax_transfer_guard_host_to_device", "log"),
    (transfer_guard_device_to_host("disallow"), "jax_transfer_guard_device_to_host", "disallow"),
    (on_reshard("raise"), "shardwise_on_reshard", "raise"),
]
UNTRACED = {"jax_log_compiles", "jax_explain_cache_misses"}  # logging does not make programs different


@pytest.mark.parametrize(("override", "name", "value"), OVERRIDES, ids=lambda x: x if isinstance(x, str) else "")
def test_override(override, name, value):
    before, token = getattr(config, name), context_token()
    with override:
        assert getattr(config, name) == value
        assert (context_token() is token) == (name in UNTRACED)
        with override:  # may be entered again
            assert getattr(config, name) == value
        assert getattr(config, name) == value
    assert getattr(config, name) == before and context_token() is token

    @override
    def decorated():
        return getattr(config, name)

    assert decorated() == value and getattr(config, name) == before


def test_transfer_guard_sets_all_directions():
    with transfer_guard("disallow"):
        assert config.jax_transfer_guard_device_to_device == "disallow"
        with transfer_guard_host_to_device("allow"):
            assert config.jax_transfer_guard_host_to_device == "allow"
        assert config.jax_transfer_guard_host_to_device == "disallow"
    assert config.jax_transfer_guard_device_to_host is None


def test_token_names_the_combination(restored):
    start = context_token()
    with enable_x64():
        wide = context_token()
        with disable_jit():
            both = context_token()
        with disable_x64():
            assert context_token() is start
        assert context_token() is wide
    with disable_jit(), enable_x64():
        assert context_token() is both
    config.update("jax_enable_x64", True)
    assert context_token() is wide
    assert config_object.context_token() is wide
    assert repr(wide) == "Token(jax_enable_x64=True)" or "shardwise_dialect" in repr(wide)


def test_overrides_that_end_out_of_order_keep_the_token_true():
    extra = Setting("extra", 0)
    start = context_token()
    with enable_x64():
        extra.set(1)
    changed = context_token()
    assert changed is not start
    assert extra.set(0) == 1 and context_token() is start
    with extra.override(5):
        assert extra.get() == 5


def test_overrides_belong_to_one_thread():
    start, seen = context_token(), []

    def other():
        seen.extend([config.x64, context_token() is start])
        with disable_jit():
            seen.append(context_token() is start)

    with enable_x64():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == [False, True, False]


def test_global_updates_reach_running_threads(restored):
    step, tokens = threading.Barrier(2, timeout=10), []

    def other():
        tokens.append(context_token())
        step.wait()
        step.wait()
        tokens.append(context_token())

    thread = threading.Thread(target=other)
    thread.start()
    step.wait()
    config.update("jax_debug_nans", True)
    step.wait()
    thread.join()
    assert tokens[0] is not tokens[1] and tokens[1] is context_token()


def test_token_is_cheap():
    best = min(timeit.repeat(context_token, number=20000, repeat=7)) / 20000
    assert best < 400e-9  # about 60 ns on an idle machine


def test_environment():
    code = "print(config.jax_num_cpu_devices, config.jax_enable_x64, config.latest)"
    assert run(code, JAX_NUM_CPU_DEVICES="5", JAX_ENABLE_X64="1").stdout == "5 True False\n"
    seen = run(code, JAX_NUM_CPU_DEVICES="5", SHARDWISE_NUM_CPU_DEVICES="6", SHARDWISE_DIALECT="latest")
    assert seen.stdout == "6 False True\n"


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"JAX_ARRAY": "0"}, "are gone"),
        ({"JAX_ENABLE_X64": "perhaps"}, "is a switch"),
        ({"JAX_NUM_CPU_DEVICES": "many"}, "takes an integer"),
        ({"SHARDWISE_DIALECT": "old"}, "takes one of"),
    ],
)
def test_environment_errors(variables, text):
    result = run("", **variables)
    assert result.returncode and "ValueError" in result.stderr and text in result.stderr


def test_command_line_flags(restored, monkeypatch):
    flags = ["prog", "--jax_enable_x64=true", "--jax-debug-nans", "--nojax_disable_jit", "x", "--", "--jax_debug_infs"]
    monkeypatch.setattr(sys, "argv", flags)
    config.parse_flags_with_absl()
    assert config.jax_enable_x64 and config.jax_debug_nans and not config.jax_disable_jit and not config.jax_debug_infs


def test_options_change_and_are_listed(restored):
    assert "jax_enable_x64" in dir(config)
    config.update("jax_transfer_guard", "log")
    assert config.jax_transfer_guard_host_to_device == "log"


def test_error_classes_stand_where_jax_has_them():
    jax = pytest.importorskip("jax")
    for name in dir(jax.errors):
        theirs = getattr(jax.errors, name)
        if not isinstance(theirs, type) or not issubclass(theirs, Exception):
            continue
        ours = getattr(errors, name)
        builtin = {c for c in theirs.__mro__ if c.__module__ == "builtins"}
        assert builtin <= set(ours.__mro__), name
        parents = {c.__name__ for c in theirs.__mro__ if c.__module__.startswith("jax.errors")}
        assert parents <= {c.__name__ for c in ours.__mro__}, name
    everything = [c for c in vars(errors).values() if isinstance(c, type)]
    assert all(issubclass(c, errors.ShardwiseError) for c in everything)
    assert issubclass(errors.IndivisibleError, ValueError) and issubclass(errors.TypePromotionError, ValueError)
    assert not issubclass(errors.DuplicateSpecError, (ValueError, TypeError))
