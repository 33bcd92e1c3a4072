"""Settings: values, overrides per thread, and the token that names their combination."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

import shardwise
from shardwise.base import config, errors
from shardwise.base import config as config_object
from shardwise.base.config import TRANSFER_DIRECTIONS, Setting, context_token, use_dialect
from shardwise.base.contexts import debug_key_reuse
from shardwise.base.options import PROCESS_WIDE
from shardwise.base.overrides import (
    checking_leaks,
    debug_infs,
    debug_nans,
    default_device,
    default_matmul_precision,
    disable_jit,
    disable_x64,
    enable_x64,
    explain_cache_misses,
    log_compiles,
    no_tracing,
    numpy_dtype_promotion,
    numpy_rank_promotion,
    on_reshard,
    transfer_guard,
    transfer_guard_host_to_device,
)
from tests.counting import count_calls

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


def test_no_tracing_refuses_what_is_not_compiled():
    f = shardwise.jit(lambda x: x + 1)
    f(1)
    with no_tracing():
        f(2)
        with pytest.raises(RuntimeError, match="no_tracing is set"):
            f(1.0)


def test_dialect_switch(restored):
    assert config.dialect.name == "0.5"
    with use_dialect("latest"):
        assert config.dialect.devices.memory_kinds == ("device", "pinned_host", "unpinned_host")
    assert config.dialect.name == "0.5"


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
    (debug_key_reuse(), "jax_debug_key_reuse", True),
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
    config.update("jax_enable_checks", False)
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


def test_one_override_in_several_threads_and_out_of_order():
    shared, steps, seen = disable_jit(), threading.Barrier(2, timeout=10), {}

    def enter_within(name, outside):
        with numpy_rank_promotion("warn"), config.override("jax_disable_jit", outside):
            steps.wait()
            with shared:
                steps.wait()
                seen[name, "inside"] = config.jax_disable_jit
            steps.wait()
            seen[name, "after"] = config.jax_disable_jit
        seen[name, "end"] = config.jax_disable_jit

    threads = [threading.Thread(target=enter_within, args=(name, name == "on")) for name in ("on", "off")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {
        ("on", "inside"): True,
        ("off", "inside"): True,
        ("on", "after"): True,
        ("off", "after"): False,
        ("on", "end"): False,
        ("off", "end"): False,
    }
    first, second = enable_x64(), disable_jit()
    for context in (first, second, shared, first):
        context.__enter__()
    for context in (first, shared, second, first):
        context.__exit__()
    assert not config.x64 and not config.jax_disable_jit


def test_an_override_ends_where_it_was_entered():
    context, errors = enable_x64(), []
    context.__enter__()

    def leave():
        try:
            context.__exit__()
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    assert config.x64
    context.__exit__()
    assert not config.x64
    assert "jax_enable_x64" in errors[0]


@pytest.mark.parametrize("name", ["shardwise_dialect", "jax_num_cpu_devices", "jax_platforms"])
def test_what_the_process_shares_is_not_overridden(name):
    with pytest.raises(ValueError, match=f"{name} holds for the whole process.*config.update"):
        config.override(name, config.read(name))


def test_every_other_option_takes_effect_in_a_context():
    seen = 0
    for name, value in config.values.items():
        if name not in PROCESS_WIDE and name != "jax_default_device":
            other = next(_others(name, value), value)
            with config.override(name, other):
                assert getattr(config, name) == other, name
            assert getattr(config, name) == value, name
            seen += other != value
    assert seen > 30
    with config.override("jax_transfer_guard", "log"):
        assert {getattr(config, name) for name in TRANSFER_DIRECTIONS} == {"log"}


def _others(name, value):
    """Values that the option takes besides its present one."""
    for candidate in (
        not value if isinstance(value, bool) else None,
        "log",
        "warn",
        "off",
        "auto",
        "raise",
        "strict",
        "float32",
        "rbg",
        "numpy",
        "seed",
        "avx2",
        "error",
        "DEBUG",
        "allow",
        7,
        None,
    ):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if config.option(name).parse(name, candidate) == candidate != value and type(candidate) in (
                    type(value),
                    str,
                    int,
                ):
                    yield candidate
        except (TypeError, ValueError, NotImplementedError):
            pass


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
    """Each call of a compiled function asks for it."""
    context_token()
    assert count_calls(context_token) <= 3


def test_environment():
    code = "print(config.jax_num_cpu_devices, config.jax_enable_x64, config.dialect.name)"
    assert run(code, JAX_NUM_CPU_DEVICES="5", JAX_ENABLE_X64="1").stdout == "5 True 0.5\n"
    seen = run(code, JAX_NUM_CPU_DEVICES="5", SHARDWISE_NUM_CPU_DEVICES="6", SHARDWISE_DIALECT="latest")
    assert seen.stdout == "6 False 0.10\n"


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
    everything = [c for c in vars(errors).values() if isinstance(c, type) and c.__module__ == errors.__name__]
    assert all(issubclass(c, errors.ShardwiseError) for c in everything)
    assert issubclass(errors.IndivisibleError, ValueError) and issubclass(errors.TypePromotionError, ValueError)
    assert not issubclass(errors.DuplicateSpecError, (ValueError, TypeError))
