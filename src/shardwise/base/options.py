"""The table of options: name, default, accepted values, environment variables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardwise.base.dialect import DIALECTS, SEED
from shardwise.base.inert_options import NO_EFFECT as NO_EFFECT
from shardwise.base.inert_options import ONE_VALUE as ONE_VALUE

_TRUE = {"y", "yes", "t", "true", "on", "1"}
_FALSE = {"n", "no", "f", "false", "off", "0"}

_TRANSFER_GUARD = ("allow", "log", "disallow", "log_explicit", "disallow_explicit")

_PRECISIONS = (
    "default",
    "high",
    "highest",
    "bfloat16",
    "tensorfloat32",
    "float32",
    "ANY_F8_ANY_F8_F32",
    "ANY_F8_ANY_F8_F32_FAST_ACCUM",
    "ANY_F8_ANY_F8_ANY",
    "ANY_F8_ANY_F8_ANY_FAST_ACCUM",
    "F16_F16_F16",
    "F16_F16_F32",
    "BF16_BF16_BF16",
    "BF16_BF16_F32",
    "BF16_BF16_F32_X3",
    "BF16_BF16_F32_X6",
    "BF16_BF16_F32_X9",
    "TF32_TF32_F32",
    "TF32_TF32_F32_X3",
    "F32_F32_F32",
    "F64_F64_F64",
)


def from_text(name: str, text: str, default: Any) -> Any:
    """Parse an option's value from the text of an environment variable or command-line argument."""
    if isinstance(default, bool):
        lowered = text.strip().lower()
        if lowered in _TRUE:
            return True
        if lowered in _FALSE:
            return False
        raise ValueError(f"{name} is a switch: give one of true/false, yes/no, on/off, 1/0, not {text!r}.")
    if isinstance(default, int):
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"{name} takes an integer, not {text!r}.") from None
    return text


def _switch(name: str, value: Any) -> bool:
    if value is True or value is False:
        return value
    if type(value) is int and value in (0, 1):
        return bool(value)
    raise TypeError(f"{name} is a switch: it takes True or False, not {value!r} of type {type(value).__name__}.")


def _choice(*choices: str, optional: bool = False) -> Callable[[str, Any], str | None]:
    def parse(name: str, value: Any) -> str | None:
        if (optional and value is None) or (isinstance(value, str) and value in choices):
            return value
        expected = ("None or " if optional else "") + f"one of {list(choices)}"
        raise ValueError(f"{name} takes {expected}; got {value!r} of type {type(value).__name__}.")

    return parse


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} takes an integer, not {value!r} of type {type(value).__name__}.")
    return value.__index__()


def _text(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} takes text or None, not {value!r} of type {type(value).__name__}.")
    return value


def _new_array_type(name: str, value: Any) -> bool:
    if not _switch(name, value):
        raise ValueError(
            f"{name} cannot be turned off: DeviceArray, ShardedDeviceArray and GlobalDeviceArray are gone and "
            "jax.Array is the one array type. Remove the setting (or the environment variable JAX_ARRAY)."
        )
    return True


def _explicit_x64(name: str, value: Any) -> str:
    text = str(getattr(value, "name", value)).lower()
    if text == "allow":
        raise NotImplementedError(
            f"{name}='allow' is not available: one switch decides whether there are 64-bit types. Set jax_enable_x64."
        )
    return _choice("warn", "error")(name, text) or "warn"


def _level(name: str, value: Any) -> str | None:
    return _choice("NOTSET", "DEBUG", "INFO", "WARNING", "WARN", "ERROR", "FATAL", "CRITICAL", optional=True)(
        name, value
    )


def _anything(name: str, value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Option:
    """One row of the table.

    Attributes:
        name: as given to `config.update`.
        default: the value when nobody sets one; its type says how text is read.
        parse: `(name, value) -> value`; raises for values that the option does not take.
        traced: whether a change makes `jit` trace again.
        aliases: further environment variables that win over the upper-cased name.
    """

    name: str
    default: Any
    parse: Callable[[str, Any], Any] = _switch
    traced: bool = True
    aliases: tuple[str, ...] = ()

    @property
    def environment(self) -> tuple[str, ...]:
        """Environment variables that set the option, the strongest first."""
        return (*self.aliases, self.name.upper())


_guard = _choice(*_TRANSFER_GUARD, optional=True)

_ACTIVE = (
    Option("shardwise_dialect", SEED.name, _choice(*DIALECTS)),
    Option("shardwise_on_reshard", "allow", _choice("allow", "raise")),
    Option("shardwise_stepped", False),
    Option("shardwise_check_replicas", True),  # whether processes compare host values that must be equal on all of them
    # whether processes of one node exchange data through shared memory, when their links are made
    Option("shardwise_shared_memory", True, traced=False),
    Option("shardwise_fused", "auto", _choice("auto", "off")),
    # gathers and scatters beside products as rings: auto between processes where that saves memory, on wherever possible
    Option("shardwise_collective_matmul", "off", _choice("off", "auto", "on")),
    # compiled kernels on disk: whether, and in which folder (None: JAX's, or the user's cache folder)
    Option("shardwise_cache", True, traced=False),
    Option("shardwise_cache_dir", None, _text, traced=False),
    Option("jax_enable_compilation_cache", True, traced=False),
    Option("jax_compilation_cache_dir", None, _text, traced=False),
    Option("shardwise_llvm", True, traced=False),  # off: behave as if llvmlite were missing
    Option(
        "shardwise_processor", None, _choice("avx2", "avx512", optional=True), traced=False
    ),  # use no instructions beyond this processor's
    Option("shardwise_blas", "auto", _choice("auto", "numpy"), traced=False),  # numpy: by NumPy's library alone
    Option("jax_num_cpu_devices", -1, _integer, traced=False, aliases=("SHARDWISE_NUM_CPU_DEVICES",)),
    Option("jax_platforms", None, _text, traced=False),
    Option("jax_platform_name", None, _text, traced=False),
    Option("jax_default_device", None, _anything),
    Option("jax_array", True, _new_array_type, traced=False),
    Option("jax_enable_x64", False),
    Option("jax_numpy_dtype_promotion", "standard", _choice("standard", "strict")),
    Option("jax_numpy_rank_promotion", "allow", _choice("allow", "warn", "raise")),
    Option("jax_default_matmul_precision", None, _choice(*_PRECISIONS, optional=True)),
    Option("jax_disable_jit", False),
    Option("jax_debug_nans", False),
    Option("jax_debug_infs", False),
    Option("jax_log_compiles", False, traced=False),
    Option("jax_explain_cache_misses", False, traced=False),
    Option("jax_check_tracer_leaks", False),
    Option("jax_transfer_guard", None, _guard, traced=False),
    Option("jax_transfer_guard_host_to_device", None, _guard),
    Option("jax_transfer_guard_device_to_device", None, _guard),
    Option("jax_threefry_partitionable", True),
    Option("jax_default_prng_impl", "threefry2x32", _choice("threefry2x32", "rbg", "unsafe_rbg")),
    Option("jax_enable_custom_prng", False),
    Option("jax_remove_size_one_mesh_axis_from_type", False),
    Option(
        "jax_traceback_filtering",
        "auto",
        _choice("auto", "off", "tracebackhide", "remove_frames", "quiet_remove_frames"),
        traced=False,
    ),
    Option("jax_no_tracing", False, traced=False),
    Option("jax_no_execution", False),
    Option("jax_enable_checks", False),
    Option("jax_debug_key_reuse", False),
    Option("jax_legacy_prng_key", "allow", _choice("allow", "warn", "error"), traced=False),
    Option("jax_random_seed_offset", 0, _integer),
    Option("jax_high_dynamic_range_gumbel", False),
    Option("jax_explicit_x64_dtypes", "warn", _explicit_x64),
    Option("jax_disallow_mesh_context_manager", False, traced=False),
    Option("jax_thread_guard", False),
    Option("jax_logging_level", None, _level, traced=False),
    Option("jax_debug_log_modules", "", _text, traced=False),
)

# Options that describe the process: its devices, dialect, log, and the thread that computes with other processes.
# No context overrides them for one thread.
PROCESS_WIDE = frozenset(
    {"shardwise_dialect", "jax_num_cpu_devices", "jax_platforms", "jax_platform_name", "jax_array", "jax_thread_guard",
     "jax_logging_level", "jax_debug_log_modules"}
)  # fmt: skip


def _like(default: Any) -> Callable[[str, Any], Any]:
    """The parser of an option without effect: a switch takes bools, other options take any value."""
    return _switch if isinstance(default, bool) else _anything


def _only(default: Any, reason: str) -> Callable[[str, Any], Any]:
    def parse(name: str, value: Any) -> Any:
        if value != default:
            raise NotImplementedError(f"{name} is {default!r} here and cannot be {value!r}: {reason}.")
        return default

    return parse


_GUARDS: dict[str, Callable[[str, Any], Any]] = {"jax_transfer_guard_device_to_host": _guard}
_NO_EFFECT = [
    Option(name, default, _GUARDS.get(name, _like(default)), traced=False) for name, (default, _) in NO_EFFECT.items()
]
_ONE_VALUE = [Option(name, default, _only(default, why), traced=False) for name, (default, why) in ONE_VALUE.items()]
OPTIONS = (*_ACTIVE, *_NO_EFFECT, *_ONE_VALUE)
