"""The table of options: name, default, accepted values, environment variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise.base.dialect import ALIASES, DIALECTS, SEED
from shardwise.base.inert_options import NO_EFFECT as NO_EFFECT
from shardwise.base.inert_options import ONE_VALUE as ONE_VALUE
from shardwise.base.lazy_dataclasses import dataclass

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
        lower_text = text.strip().lower()
        if lower_text in _TRUE:
            return True
        if lower_text in _FALSE:
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
        expectation = ("None or " if optional else "") + f"one of {list(choices)}"
        raise ValueError(f"{name} takes {expectation}; got {value!r} of type {type(value).__name__}.")

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


def _accept_any(name: str, value: Any) -> Any:
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
        meaning: what it does, for the page of settings.
    """

    name: str
    default: Any
    parse: Callable[[str, Any], Any] = _switch
    traced: bool = True
    aliases: tuple[str, ...] = ()
    meaning: str = ""

    @property
    def environment(self) -> tuple[str, ...]:
        """Environment variables that set the option, the strongest first."""
        return (*self.aliases, self.name.upper())


def _dialect(name: str, value: Any) -> str | None:
    if isinstance(value, str) and value in ALIASES:
        return ALIASES[value]
    return _choice(*DIALECTS)(name, value)


_guard = _choice(*_TRANSFER_GUARD, optional=True)

ACTIVE = (
    Option(
        "shardwise_dialect",
        SEED.name,
        _dialect,
        meaning="which era of JAX decides where names have two behaviours: see the page of dialects",
    ),
    Option(
        "shardwise_on_reshard",
        "allow",
        _choice("allow", "raise"),
        meaning="'raise': a program that moves an array unasked is an error that names the line",
    ),
    Option(
        "shardwise_stepped",
        False,
        meaning="compiled programs run operation by operation and device by device, as plain Python would",
    ),
    Option(
        "shardwise_check_replicas", True, meaning="processes compare host values that have to be equal on all of them"
    ),
    Option(
        "shardwise_shared_memory",
        True,
        traced=False,
        meaning="processes of one machine exchange data through shared memory; read when the processes connect",
    ),
    Option(
        "shardwise_whole_values",
        "auto",
        _choice("auto", "off"),
        meaning="'off': devices of one process compute with their parts also where they exchange these, as separate devices do",
    ),
    Option("shardwise_fused", "auto", _choice("auto", "off"), meaning="'off': large elementwise groups run op by op"),
    Option(
        "shardwise_collective_matmul",
        "off",
        _choice("off", "auto", "on"),
        meaning="gathers and scatters beside products become rings, 'auto': where that saves memory between processes",
    ),
    Option("shardwise_cache", True, traced=False, meaning="compiled kernels are kept on disk between runs"),
    Option(
        "shardwise_cache_dir",
        None,
        _text,
        traced=False,
        meaning="the folder of kept kernels (None: JAX's, or the user's cache folder)",
    ),
    Option("jax_enable_compilation_cache", True, traced=False, meaning="as `shardwise_cache`, under JAX's name"),
    Option(
        "jax_compilation_cache_dir", None, _text, traced=False, meaning="as `shardwise_cache_dir`, under JAX's name"
    ),
    Option("shardwise_llvm", True, traced=False, meaning="False: behave as if llvmlite were missing"),
    Option(
        "shardwise_processor",
        None,
        _choice("avx2", "avx512", optional=True),
        traced=False,
        meaning="use no instructions beyond this processor's (None: all that there are)",
    ),
    Option(
        "shardwise_blas",
        "auto",
        _choice("auto", "numpy"),
        traced=False,
        meaning="'numpy': matrix products by NumPy's library alone",
    ),
    Option(
        "jax_num_cpu_devices",
        -1,
        _integer,
        traced=False,
        aliases=("SHARDWISE_NUM_CPU_DEVICES",),
        meaning="how many virtual devices this process has (-1: one); read at the first use of a device",
    ),
    Option("jax_platforms", None, _text, traced=False, meaning="refuses platforms other than the CPU"),
    Option("jax_platform_name", None, _text, traced=False, meaning="as `jax_platforms`, the older name"),
    Option("jax_default_device", None, _accept_any, meaning="where arrays are made that no sharding places"),
    Option("jax_array", True, _new_array_type, traced=False, meaning="True, as there is one array type"),
    Option("jax_enable_x64", False, meaning="64-bit types; False makes them 32 bits wide"),
    Option(
        "jax_numpy_dtype_promotion",
        "standard",
        _choice("standard", "strict"),
        meaning="'strict': operands of different dtypes are an error",
    ),
    Option(
        "jax_numpy_rank_promotion",
        "allow",
        _choice("allow", "warn", "raise"),
        meaning="operands of different numbers of dims warn or are an error",
    ),
    Option(
        "jax_default_matmul_precision",
        None,
        _choice(*_PRECISIONS, optional=True),
        meaning="the precision of products that name none",
    ),
    Option("jax_disable_jit", False, meaning="`jit`, control flow and `shard_map` run as plain Python"),
    Option("jax_debug_nans", False, meaning="a result with a NaN is an error"),
    Option("jax_debug_infs", False, meaning="a result with an infinity is an error"),
    Option("jax_log_compiles", False, traced=False, meaning="each compilation is logged"),
    Option("jax_explain_cache_misses", False, traced=False, meaning="each trace says why no earlier one fits"),
    Option("jax_check_tracer_leaks", False, meaning="tracers that outlive their transformation are an error"),
    Option("jax_allow_f16_reductions", True, meaning="False: `lax.reduce_sum` of float16 or bfloat16 is an error"),
    Option("jax_check_static_indices", False, meaning="a read at a Python integer out of bounds is an error"),
    Option(
        "jax_transfer_guard",
        None,
        _guard,
        traced=False,
        meaning="what happens on copies that no call asked for, of all kinds below",
    ),
    Option(
        "jax_transfer_guard_host_to_device",
        None,
        _guard,
        meaning="what happens where a program uses host values as arrays",
    ),
    Option(
        "jax_transfer_guard_device_to_device", None, _guard, meaning="what happens where arrays move between devices"
    ),
    Option("jax_threefry_partitionable", True, meaning="False: the random bits of older versions of JAX"),
    Option(
        "jax_default_prng_impl",
        "threefry2x32",
        _choice("threefry2x32", "threefry4x32", "philox2x32", "philox4x32", "rbg", "unsafe_rbg"),
        meaning="the generator of new keys",
    ),
    Option("jax_enable_custom_prng", False, meaning="`random.PRNGKey` makes typed keys, as `random.key` does"),
    Option("jax_remove_size_one_mesh_axis_from_type", False, meaning="types leave out mesh axes of size 1"),
    Option(
        "jax_traceback_filtering",
        "auto",
        _choice("auto", "off", "tracebackhide", "remove_frames", "quiet_remove_frames"),
        traced=False,
        meaning="'off': tracebacks show frames inside of the library",
    ),
    Option("jax_no_tracing", False, traced=False, meaning="a function that would have to be traced is an error"),
    Option("jax_no_execution", False, meaning="a computation is an error; tracing is not"),
    Option("jax_enable_checks", False, meaning="programs are verified after each pass"),
    Option("jax_debug_key_reuse", False, meaning="a random key that is used twice is an error"),
    Option(
        "jax_legacy_prng_key",
        "allow",
        _choice("allow", "warn", "error"),
        traced=False,
        meaning="what happens where a key of the old style (`random.PRNGKey`) is used",
    ),
    Option("jax_random_seed_offset", 0, _integer, meaning="is added to the seeds of new keys"),
    Option("jax_high_dynamic_range_gumbel", False, meaning="Gumbel numbers from more random bits"),
    Option(
        "jax_explicit_x64_dtypes",
        "warn",
        _explicit_x64,
        meaning="what happens where a 64-bit dtype is asked for while there is none",
    ),
    Option("jax_disallow_mesh_context_manager", False, traced=False, meaning="`with mesh:` is an error"),
    Option(
        "jax_thread_guard",
        False,
        meaning="with several processes, computing on another thread than the first that did is an error",
    ),
    Option("jax_logging_level", None, _level, traced=False, meaning="the level of the library's log"),
    Option(
        "jax_debug_log_modules",
        "",
        _text,
        traced=False,
        meaning="modules, separated by commas, whose log shows everything",
    ),
)

# Options that describe the process: its devices, dialect, log, and the thread that computes with other processes.
# No context overrides them for one thread.
PROCESS_WIDE = frozenset(
    {"shardwise_dialect", "jax_num_cpu_devices", "jax_platforms", "jax_platform_name", "jax_array", "jax_thread_guard",
     "jax_logging_level", "jax_debug_log_modules"}
)  # fmt: skip


def _like(default: Any) -> Callable[[str, Any], Any]:
    """The parser of an option without effect: a switch takes bools, other options take any value."""
    return _switch if isinstance(default, bool) else _accept_any


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
OPTIONS = (*ACTIVE, *_NO_EFFECT, *_ONE_VALUE)
