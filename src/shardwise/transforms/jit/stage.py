"""The base of `Traced`, `Lowered` and `Compiled`: the signature of the call, and the types of arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base import config
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tree import PyTreeDef, tree_structure, tree_unflatten
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.ir import ShapedArray
from shardwise.ir.references import Reference
from shardwise.sharding import Sharding
from shardwise.sharding.formats import Format
from shardwise.transforms.jit.abstract import struct_of
from shardwise.transforms.jit.references import pass_references, without_passed

ArgsKwargs = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class OutInfo:
    """A leaf of the results in JAX 0.5.3: shape, dtype, and the sharding if the call or the type gives one."""

    shape: tuple[int, ...]
    dtype: Any
    sharding: Sharding | None = None

    @classmethod
    def of(cls, aval: ShapedArray, sharding: Sharding | None = None) -> OutInfo:
        """The OutInfo of a result of type `aval`."""
        struct = struct_of(aval, sharding)
        return cls(struct.shape, struct.dtype, struct.sharding)


@dataclass(frozen=True)
class ArgInfo:
    """A leaf of the arguments: its type, and whether it is donated."""

    _aval: ShapedArray
    donated: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape."""
        return self._aval.shape

    @property
    def dtype(self) -> Any:
        """The element type."""
        return self._aval.dtype


@dataclass(frozen=True)
class ReferencePassing:
    """How a function of the arrays of references is called: `closed` are those that the user's function closes over."""

    closed: tuple[Reference, ...]

    def call(self, compiled: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call with the arrays of references, and write their last values back."""
        positional, keywords, references = pass_references(compiled, args, range(len(args)), kwargs, self.closed)
        if self.closed:
            positional.append([r.take_array() for r in self.closed])
        result, last = compiled(*positional, **keywords)
        for reference, value in zip((*references, *self.closed), last, strict=True):
            reference.replace(value)
        return result


def strong_struct(aval: ShapedArray, sharding: Sharding | Format | None) -> ShapeDtypeStruct:
    """The struct of a result once it is lowered: a compiled program has no weak types."""
    return struct_of(aval.update(weak_type=False), sharding)


class Stage:
    """The base of the three stages: the signature of the call."""

    over: ReferencePassing | None = None

    def __init__(
        self,
        in_tree: PyTreeDef,
        avals: Sequence[ShapedArray],
        donated: Sequence[int],
        out_tree: PyTreeDef,
        out_avals: Sequence[ShapedArray],
        name: str,
        chosen: Sequence[Sharding | None],
    ) -> None:
        self._avals = tuple(avals)
        self._out_avals = tuple(out_avals)
        self._chosen = tuple(chosen)  # the resolved out_shardings
        self._tree = in_tree  # of the arguments as the program gets them
        self.out_tree = out_tree
        self.donate_argnums = tuple(donated)
        self.fun_name = name

    @property
    def in_tree(self) -> PyTreeDef:
        """The structure of (args, kwargs) without static arguments."""
        return self._tree if self.over is None else tree_structure(self._as_arguments(self._avals))

    @property
    def in_avals(self) -> ArgsKwargs:
        """The arguments' types, as (args, kwargs) without static arguments."""
        return self._as_arguments(self._avals)

    def _as_arguments(self, leaves: Sequence[Any]) -> ArgsKwargs:
        """The trees of arguments as the user gives them: a reference has one leaf; references that the function closes over have none."""
        args, kwargs = tree_unflatten(self._tree, leaves)
        if self.over is None:
            return args, kwargs
        return without_passed((args[:-1] if self.over.closed else args, kwargs))

    @property
    def out_avals(self) -> Any:
        """The results' types, as a tree."""
        return self._as_results(self._out_avals)

    def _as_results(self, leaves: Sequence[Any]) -> Any:
        """The tree of results, without the arrays of references."""
        results = tree_unflatten(self.out_tree, leaves)
        return results if self.over is None else results[0]

    def _results(self, info: Callable[[ShapedArray, Sharding | None], Any]) -> Any:
        """The tree of `info(type, sharding)` over the results; the sharding comes from out_shardings or is None."""
        return self._as_results(list(map(info, self._out_avals, self._chosen)))

    @property
    def out_info(self) -> Any:
        """The results' types and out_shardings, as a tree of ShapeDtypeStructs or, by dialect, OutInfos."""
        return self._results(struct_of if config.dialect.jit.out_info_is_struct else OutInfo.of)

    @property
    def args_info(self) -> ArgsKwargs:
        """An ArgInfo (type, donated) per argument leaf, as (args, kwargs)."""
        infos = [ArgInfo(t, i in self.donate_argnums) for i, t in enumerate(self._avals)]
        return self._as_arguments(infos)
