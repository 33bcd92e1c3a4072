"""Every option of JAX's acts, is known to change nothing, or is refused; and each that acts has a probe here that shows it."""

from __future__ import annotations

import ast
import logging
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.base.config import config
from shardwise.base.inert_options import NO_EFFECT, ONE_VALUE
from shardwise.base.options import OPTIONS

SOURCE = Path(__file__).parents[2] / "src"
ACTING = [row.name for row in OPTIONS if row.name not in NO_EFFECT and row.name not in ONE_VALUE]

# What JAX 0.5.3 has beyond 0.10.2.
ONLY_0_5_3 = """jax_cpu_enable_gloo_collectives jax_custom_vjp_disable_shape_check jax_data_dependent_tracing_fallback
jax_default_dtype_bits
jax_dynamic_shapes
jax_enable_custom_vjp_by_custom_transpose jax_enable_empty_arrays jax_pmap_no_rank_reduction jax_pmap_shmap_merge
jax_remat_opt_barrier jax_spmd_mode jax_varying_axes_in_types jax_eager_pmap""".split()


@pytest.fixture(autouse=True)
def restored():
    before = config.values
    yield
    for name, value in before.items():
        if config.setting(name).value != value:
            config.update(name, value)


def raised(function: Callable[[], Any]) -> str:
    """The result's text, or the name of the error's class."""
    try:
        return str(function())
    except Exception as error:
        return type(error).__name__


def warned(function: Callable[[], Any]) -> int:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        function()
    return len(seen)


def logged(function: Callable[[], Any], level: int = logging.DEBUG) -> list[str]:
    """The messages of our logger."""
    seen: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("shardwise")
    logger.addHandler(handler)
    try:
        function()
    finally:
        logger.removeHandler(handler)
    return [m for m in seen if "no effect" not in m]


def fresh(function: Callable[..., Any]) -> Any:
    """A function that `jit` has not seen."""
    return sw.jit(lambda *args: function(*args))


def leak() -> str:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.append(x)
        return x

    return raised(lambda: sw.jit(f)(1.0))


def misses() -> str:
    f = fresh(lambda x: x + 1)
    f(1.0)
    return str(len(logged(lambda: f(np.ones(2)))))


def broken_program() -> str:
    from shardwise.engine.compile import compile_program
    from shardwise.ir import Program, trace_program

    program, _ = trace_program(lambda x: [jnp.sin(x)], [jnp.ones(2).aval], "f")
    (eqn,) = program.equations
    twice = Program(program.inputs, (eqn, eqn), program.outputs, 0, "f")  # defines a value two times
    return raised(lambda: type(compile_program(twice, [cast(Any, jnp.ones(2))._sig], [None])).__name__)


def _ran(args: Sequence[Any]) -> list[Any]:
    return ["ran"]


def from_another_thread() -> str:
    """What a computation over several processes meets that another thread starts."""
    from shardwise.engine.guards import refuse_execution

    call, seen = refuse_execution(_ran, "f", many_processes=True), []
    thread = threading.Thread(target=lambda: seen.append(raised(lambda: call([]))))
    thread.start()
    thread.join()
    return seen[0]


MESH = sw.make_mesh((2,), ("x",), devices=sw.devices()[:2])
SPLIT = sw.NamedSharding(MESH, sw.sharding.PartitionSpec("x"))


def with_mesh() -> str:
    with MESH:
        return "entered"


# name: (another value, what tells the difference)
PROBES: dict[str, tuple[Any, Callable[[], str]]] = {
    "shardwise_dialect": ("latest", lambda: str(sw.devices()[0])),
    "shardwise_on_reshard": ("raise", lambda: raised(lambda: fresh(lambda x: x.reshape(8)[::-1] + x.reshape(8))(
        sw.device_put(jnp.ones((2, 4)), SPLIT)).shape)),
    "shardwise_stepped": (True, lambda: str(type(fresh(jnp.sin).lower(1.0).compile()._entry.executable.plan).__name__)),
    "jax_default_device": (sw.devices()[1], lambda: str(jnp.ones(2).devices())),
    "jax_enable_x64": (True, lambda: str(jnp.ones(2).dtype)),
    "jax_numpy_dtype_promotion": ("strict", lambda: raised(lambda: jnp.ones(2, jnp.float32) + jnp.ones(2, jnp.int32))),
    "jax_numpy_rank_promotion": ("raise", lambda: raised(lambda: jnp.ones(2) + jnp.ones((2, 2)))),
    "jax_default_matmul_precision": ("highest", lambda: str(sw.make_jaxpr(lambda x: x @ x)(np.ones((2, 2), np.float32)))),
    "jax_disable_jit": (True, lambda: raised(lambda: sw.jit(lambda x: 1.0 if x > 0 else 2.0)(1.0))),
    "jax_debug_nans": (True, lambda: raised(lambda: jnp.log(-1.0))),
    "jax_debug_infs": (True, lambda: raised(lambda: jnp.log(0.0))),
    "jax_log_compiles": (True, lambda: str(len(logged(lambda: fresh(jnp.sin)(1.0))) > 0)),
    "jax_explain_cache_misses": (True, misses),
    "jax_check_tracer_leaks": (True, leak),
    "jax_allow_f16_reductions": (False, lambda: raised(lambda: sw.lax.reduce_sum(jnp.ones(2, jnp.float16), (0,)))),
    "jax_check_static_indices": (True, lambda: raised(lambda: jnp.ones(2)[5])),
    "jax_transfer_guard": ("disallow", lambda: raised(lambda: jnp.sin(np.ones(2, np.float32)))),
    "jax_transfer_guard_host_to_device": ("disallow", lambda: raised(lambda: jnp.sin(np.ones(2, np.float32)))),
    "jax_transfer_guard_device_to_device": ("disallow", lambda: raised(lambda: fresh_to_mesh())),
    "jax_threefry_partitionable": (False, lambda: str(sw.random.bits(sw.random.key(0), (4,)))),
    "jax_default_prng_impl": ("rbg", lambda: str(sw.random.key(0).dtype)),
    "jax_remove_size_one_mesh_axis_from_type": (True, lambda: str(sw.typeof(sw.device_put(np.ones(2), on_one_device())))),
    "jax_enable_custom_prng": (True, lambda: str(sw.random.PRNGKey(0).dtype)),
    "jax_no_tracing": (True, lambda: raised(lambda: fresh(jnp.sin)(1.0))),
    "jax_no_execution": (True, lambda: raised(lambda: fresh(jnp.sin)(1.0))),
    "jax_enable_checks": (True, broken_program),
    "jax_debug_key_reuse": (True, lambda: raised(lambda: use_twice())),
    "jax_legacy_prng_key": ("error", lambda: raised(lambda: sw.random.normal(sw.random.PRNGKey(0)))),
    "jax_random_seed_offset": (3, lambda: str(sw.random.key_data(sw.random.key(4)))),
    "jax_high_dynamic_range_gumbel": (True, lambda: str(sw.random.gumbel(sw.random.key(0)))),
    "jax_explicit_x64_dtypes": ("error", lambda: raised(lambda: warned(lambda: jnp.ones(2, "float64")))),
    "jax_disallow_mesh_context_manager": (True, lambda: raised(with_mesh)),
    "jax_thread_guard": (True, from_another_thread),
    "jax_logging_level": ("DEBUG", lambda: str(logging.getLogger("shardwise").level)),
    "jax_debug_log_modules": ("jax._src.xla_bridge", lambda: str(logging.getLogger("shardwise").level)),
}  # fmt: skip

# Those that speak to the start of a process, and where they are tested.
ELSEWHERE = {
    "shardwise_check_replicas": "distributed",
    "shardwise_shared_memory": "distributed",
    "shardwise_whole_values": "passes/test_whole_values.py",
    "shardwise_fused": "runtime/test_fused.py",
    "shardwise_collective_matmul": "passes/test_collective_matmul.py",
    "shardwise_cache": "runtime",
    "shardwise_cache_dir": "runtime",
    "jax_enable_compilation_cache": "runtime",
    "jax_compilation_cache_dir": "runtime",
    "shardwise_llvm": "runtime",
    "shardwise_processor": "runtime/machine/test_processor.py",
    "shardwise_blas": "runtime",
    "jax_num_cpu_devices": "base/test_config.py",
    "jax_platforms": "sharding",
    "jax_platform_name": "sharding",
    "jax_array": "base/test_config.py",
    "jax_traceback_filtering": "base/test_tracebacks.py",
}


def on_one_device() -> sw.NamedSharding:
    explicit = sw.make_mesh((1,), ("x",), axis_types=(sw.sharding.AxisType.Explicit,))
    return sw.NamedSharding(explicit, sw.sharding.PartitionSpec("x"))


def fresh_to_mesh() -> Any:
    x = jnp.ones(2)
    return sw.jit(lambda x: x + 1, in_shardings=SPLIT)(x)


def use_twice() -> Any:
    key = sw.random.key(0)
    return sw.random.bits(key), sw.random.bits(key)


def test_every_option_has_a_place() -> None:
    assert set(PROBES) | set(ELSEWHERE) == set(ACTING)
    assert not set(PROBES) & set(ELSEWHERE)
    assert not set(NO_EFFECT) & set(ONE_VALUE)


@pytest.mark.parametrize("name", PROBES)
def test_option_acts(name: str) -> None:
    value, probe = PROBES[name]
    config.update("jax_enable_checks", False)  # as users have it
    before = probe()
    config.update(name, value)
    assert probe() != before


@pytest.mark.parametrize("name", ONE_VALUE)
def test_other_values_are_refused_with_the_reason(name: str) -> None:
    default, reason = ONE_VALUE[name]
    config.update(name, default)
    other = (not default) if isinstance(default, bool) else 7 if isinstance(default, int) else "another"
    with pytest.raises(NotImplementedError, match=name) as error:
        config.update(name, other)
    assert reason in str(error.value) and config.read(name) == default


def test_options_without_effect_are_kept_quietly(caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings(), caplog.at_level(logging.INFO, "shardwise"):
        warnings.simplefilter("error")
        for name, (default, reason) in NO_EFFECT.items():
            other = (not default) if isinstance(default, bool) else 7 if isinstance(default, int) else "allow"
            config.update(name, other)
            assert config.read(name) == other and getattr(config, name) == other
            assert name in caplog.text and reason in caplog.text


def test_options_without_effect_still_know_their_values() -> None:
    with pytest.raises(ValueError, match="takes None or one of"):
        config.update("jax_transfer_guard_device_to_host", "perhaps")
    with pytest.raises(TypeError, match="switch"):
        config.update("jax_enable_pgle", "perhaps")


def test_every_option_of_jax_is_known() -> None:
    pytest.importorskip("jax")
    from jax._src import config as of_jax

    ours, theirs = {row.name for row in OPTIONS}, {*of_jax.config._value_holders, *ONLY_0_5_3}
    assert not theirs - ours
    ours_only = {n for n in ours - theirs if not n.startswith("shardwise_")}
    assert ours_only == {"jax_array"}


def test_acting_options_are_read_somewhere() -> None:
    read: set[str] = set()
    named = re.compile(rf"\b({'|'.join(ACTING)})\b")
    for path in (SOURCE / "shardwise").rglob("*.py"):
        if path.name in ("options.py", "inert_options.py") or not named.search(text := path.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute):
                read.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                read.add(node.value)
    missing = set(ACTING) - read - {"jax_array"}
    assert not missing


def test_guards_between_devices() -> None:
    d = sw.devices()
    x, y = jnp.arange(4.0), sw.device_put(jnp.arange(4.0), d[1])
    s = sw.device_put(x, SPLIT)
    implicit = {
        "x + s": lambda: x + s,
        "in_shardings": lambda: sw.jit(lambda a: a * 2, in_shardings=SPLIT)(x),
        "out_shardings": lambda: sw.jit(lambda a: a * 2, out_shardings=SPLIT)(x),
        "constraint": lambda: sw.lax.with_sharding_constraint(x, SPLIT),
        "pmap": lambda: sw.pmap(lambda a: a + 1)(x.reshape(2, 2)),
    }
    explicit = {"to one": lambda: sw.device_put(x, d[1]), "to many": lambda: sw.device_put(x, SPLIT)}
    none = {
        "within": lambda: s + s,
        "one device": lambda: y + 1.0,
        "scalars": lambda: s + 1.0,
        "stay": lambda: sw.device_put(s, s.sharding),
        "same devices": lambda: sw.lax.with_sharding_constraint(s, sw.NamedSharding(MESH, sw.sharding.PartitionSpec())),
        "host": lambda: sw.device_put(np.ones(4), SPLIT),
        "read": lambda: (np.asarray(s), float(x[0]), repr(s)),
    }
    for level, moves, stays in (
        ("disallow", implicit, explicit | none),
        ("disallow_explicit", implicit | explicit, none),
    ):
        with sw.transfer_guard_device_to_device(level):
            for name, move in moves.items():
                for _ in range(2):  # compiled or not
                    assert raised(move) == "JaxRuntimeError", (level, name)
            for name, stay in stays.items():
                assert raised(stay) != "JaxRuntimeError", (level, name)
    with sw.transfer_guard_device_to_device("log"):
        assert any("device-to-device" in m for m in logged(implicit["in_shardings"]))
    with sw.transfer_guard("disallow"), sw.transfer_guard("allow"):
        implicit["in_shardings"]()


def test_guards_from_the_host() -> None:
    host, x = np.ones(4, np.float32), jnp.ones(4)
    implicit = {
        "operand": lambda: x + host,
        "argument": lambda: sw.jit(jnp.sin)(host),
        "jnp.array": lambda: jnp.array(host),
        "a list": lambda: jnp.asarray([1.0, 2.0]),
        "index": lambda: x[np.array([0, 1])],
    }
    with sw.transfer_guard_host_to_device("disallow"):
        assert {raised(f) for f in implicit.values()} == {"JaxRuntimeError"}
        sw.device_put(host)
    with sw.transfer_guard_host_to_device("disallow_explicit"):
        assert raised(lambda: sw.device_put(host)) == "JaxRuntimeError"


def test_reading_is_no_transfer() -> None:
    with sw.transfer_guard_device_to_host("disallow_explicit"):  # as on JAX's CPU devices
        assert (
            float(jnp.ones(())) == 1.0 and np.asarray(jnp.ones(2)).sum() == 2.0 and sw.device_get(jnp.ones(2)).size == 2
        )


def test_thread_guard_belongs_to_the_thread_that_set_it() -> None:
    assert from_another_thread() == "['ran']"
    with sw.thread_guard():
        assert from_another_thread() == "RuntimeError"
        from shardwise.engine.guards import refuse_execution

        assert refuse_execution(_ran, "f", many_processes=True)([]) == ["ran"]
        assert refuse_execution(_ran, "f", many_processes=False)([]) == ["ran"]
    assert from_another_thread() == "['ran']"


def test_legacy_keys() -> None:
    key = sw.random.PRNGKey(0)
    with sw.legacy_prng_key("warn"), pytest.warns(UserWarning, match="Legacy uint32 key"):
        sw.random.normal(key)
    with sw.legacy_prng_key("error"), pytest.raises(ValueError, match="Legacy uint32 key"):
        sw.random.split(key)
    with sw.legacy_prng_key("error"):
        sw.random.normal(sw.random.key(0))


def test_seed_offset_and_wide_gumbel_are_as_in_jax() -> None:
    jax = pytest.importorskip("jax")
    got = []
    for lib in (sw, jax):
        lib.config.update("jax_random_seed_offset", 5)
        lib.config.update("jax_high_dynamic_range_gumbel", True)
        try:
            keys = [np.asarray(lib.random.key_data(lib.random.key(s))) for s in (0, 7, 2**31 - 1)]
            got.append((np.array(keys), np.asarray(lib.random.gumbel(lib.random.key(1), (50,)))))
        finally:
            lib.config.update("jax_random_seed_offset", 0)
            lib.config.update("jax_high_dynamic_range_gumbel", False)
    assert np.array_equal(got[0][0], got[1][0])
    np.testing.assert_array_max_ulp(got[0][1], got[1][1], 4)


def test_compiling_goes_on_without_execution() -> None:
    with sw.no_execution():
        f = sw.jit(lambda x: x * 2)
        compiled = f.lower(np.ones(2)).compile()
        with pytest.raises(RuntimeError, match="no_execution"):
            f(np.ones(2))
    assert compiled.out_avals


def test_logging_to_the_terminal() -> None:
    code = "import shardwise as s; import logging; logging.getLogger('shardwise').debug('told'); s.config.update('jax_xla_backend', '')"
    environment = {"PYTHONPATH": str(SOURCE), "JAX_LOGGING_LEVEL": "DEBUG"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert "told" in done.stderr and "jax_xla_backend has no effect" in done.stderr
    environment = {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert not done.stderr
