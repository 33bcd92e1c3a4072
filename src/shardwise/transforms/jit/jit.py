"""`jit` and `pjit`: they check their options and wrap a function as a `JitWrapped`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from shardwise.base.removed import ABSENT, old_argument
from shardwise.base.signatures import P, R
from shardwise.base.tracebacks import is_users_code
from shardwise.base.wrapping import code_of
from shardwise.sharding import Device, devices
from shardwise.transforms.jit.binding import JitOptions
from shardwise.transforms.jit.jit_shardings import UNSPECIFIED, check_leaves
from shardwise.transforms.jit.wrapped import JitWrapped, wrap
from shardwise.transforms.tracing import check_compiler_options, check_function, select_arguments

if TYPE_CHECKING:
    from typing import Protocol, TypedDict, Unpack

    class JitKeywords(TypedDict, total=False):
        """The options of `jit`."""

        in_shardings: Any
        out_shardings: Any
        static_argnums: Any
        static_argnames: Any
        donate_argnums: Any
        donate_argnames: Any
        keep_unused: bool
        device: Any
        backend: str | None
        inline: bool
        abstracted_axes: Any
        compiler_options: Any

    class Decorator(Protocol):
        """`jit` with its options and without a function."""

        def __call__(self, f: Callable[P, R], /) -> JitWrapped[P, R]: ...


@overload
def jit(fun: Callable[P, R], /, **options: Unpack[JitKeywords]) -> JitWrapped[P, R]: ...
@overload
def jit(**options: Unpack[JitKeywords]) -> Decorator: ...
def jit(
    fun: Any = None,
    /,
    *,
    in_shardings: Any = UNSPECIFIED,
    out_shardings: Any = UNSPECIFIED,
    static_argnums: Any = None,
    static_argnames: Any = None,
    donate_argnums: Any = None,
    donate_argnames: Any = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    abstracted_axes: Any = ABSENT,
    compiler_options: Any = None,
) -> Any:
    """Compile `fun` for each signature (structure, types and shardings) of its arguments, partitioned automatically
    over the devices that hold them. The result is called like `fun` and has the methods `lower`, `trace`,
    `eval_shape` and `clear_cache`. Without `fun` returns a decorator.

    Args:
        in_shardings: where arguments go, as a prefix tree of Shardings (or PartitionSpecs under a mesh); None: as
            they are.
        out_shardings: where results go, likewise; None: as propagation finds.
        static_argnums: positions of arguments that are constants of the trace; they must be hashable.
        static_argnames: and their names.
        donate_argnums: positions of arguments whose memory results may take; these arguments cannot be used
            afterwards.
        donate_argnames: and their names.
        keep_unused: keep arguments that no result depends on.
        device, backend: deprecated: where to run. Give arguments that are there.
        inline: splice the program into that of a caller.
        abstracted_axes: not supported: every shape is compiled on its own.
        compiler_options: a dict; options of XLA have no effect, other names are refused.

    Raises:
        TypeError: `fun` is no function, or an option has the wrong type.
        ValueError: arguments disagree with `in_shardings`, or lie on different devices.
        NotImplementedError: `abstracted_axes` is given.

    >>> f = jax.jit(lambda x: 2 * x + 1)
    >>> f(jnp.arange(3))
    Array([1, 3, 5], dtype=int32)
    """
    options: Any = {name: value for name, value in locals().items() if name != "fun"}
    if fun is None:
        return lambda f: make_jit(f, "jit", **options)
    return make_jit(fun, "jit", **options)


def pjit(
    fun: Callable[P, R],
    in_shardings: Any = UNSPECIFIED,
    out_shardings: Any = UNSPECIFIED,
    static_argnums: Any = None,
    static_argnames: Any = None,
    donate_argnums: Any = None,
    donate_argnames: Any = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    abstracted_axes: Any = ABSENT,
    compiler_options: Any = None,
    **old: Any,
) -> JitWrapped[P, R]:
    """`jit` under its old name; bare PartitionSpecs and None resolve in the mesh of `with mesh:` at each call.

    `fun`, `in_shardings`, `out_shardings`, `static_argnums`, `static_argnames`, `donate_argnums`, `donate_argnames`,
    `keep_unused`, `device`, `backend`, `inline`, `abstracted_axes` and `compiler_options` as there.

    Raises:
        TypeError: an `old` name of an argument, whose new one it gives, or an unknown one.

    >>> jax.experimental.pjit.pjit(lambda x: x + 1)(jnp.arange(2))
    Array([1, 2], dtype=int32)
    """
    options: Any = {name: value for name, value in locals().items() if name not in ("fun", "old")}
    for name in ("in_axis_resources", "out_axis_resources"):
        if name in old:
            raise TypeError(f"pjit no longer takes {name}; its name is {name.replace('axis_resources', 'shardings')}.")
    if old:
        raise TypeError(f"pjit got an unexpected keyword argument {next(iter(old))!r}")
    return make_jit(fun, "pjit", **options)


def make_jit(
    fun: Callable[P, R],
    api: str,
    *,
    in_shardings: Any,
    out_shardings: Any,
    static_argnums: Any,
    static_argnames: Any,
    donate_argnums: Any,
    donate_argnames: Any,
    keep_unused: bool,
    device: Any,
    backend: str | None,
    inline: bool,
    abstracted_axes: Any,
    compiler_options: Any,
) -> JitWrapped[P, R]:
    """Check the options and wrap `fun`."""
    check_function(fun)
    if old_argument(api, "abstracted_axes", abstracted_axes, "every shape is compiled on its own") is not None:
        raise NotImplementedError(
            "abstracted_axes (shape polymorphism) is not supported: every shape is compiled on its own, "
            "in milliseconds. Drop the argument."
        )
    check_compiler_options(compiler_options)
    for tree, option in ((in_shardings, "in_shardings"), (out_shardings, "out_shardings")):
        if tree is not UNSPECIFIED:
            check_leaves(tree, option)
    target = _deprecated_target(device, backend, in_shardings, out_shardings)
    chosen = select_arguments(fun, static_argnums, static_argnames, donate_argnums, donate_argnames)
    # The caller of jit counts too: grad(f), vmap(f), shard_map(f) and functions of numpy are our own code.
    is_asked_for = is_users_code(code_of(fun)) or is_users_code(sys._getframe(2).f_code)
    return wrap(fun, JitOptions(api, in_shardings, out_shardings, chosen, keep_unused, target, inline, is_asked_for))


def _deprecated_target(device: Any, backend: str | None, in_shardings: Any, out_shardings: Any) -> Device | None:
    if device is None and backend is None:
        return None
    warnings.warn(
        "backend and device argument on jit is deprecated. Put the arguments on the device with "
        "device_put(x, device) instead.",
        DeprecationWarning,
        stacklevel=4,
    )
    if device is not None and backend is not None:
        raise ValueError(f"can't specify both a device and a backend for jit, got {device=} and {backend=}.")
    if in_shardings is not UNSPECIFIED or out_shardings is not UNSPECIFIED:
        raise ValueError(
            "If backend or device is specified on jit, then in_shardings and out_shardings should not be specified. "
            "Use one of the two ways."
        )
    return device if device is not None else devices(backend)[0]
