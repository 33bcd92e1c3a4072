"""`JAXSparse`: the common part of sparse formats."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from shardwise.base.tree import tree_leaves
from shardwise.ir import Array


class JAXSparse(ABC):
    """An array that keeps the elements `data` of a dense array of shape `shape`."""

    __slots__ = ()
    __array_ufunc__ = None  # so that a NumPy array times this calls this class's operator
    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    data: Any
    shape: tuple[int, ...]
    n_batch = 0
    n_dense = 0

    @property
    def nse(self) -> int:
        """How many elements are kept."""
        return self.data.shape[0]

    @abstractmethod
    def todense(self) -> Array:
        """The dense array."""

    @abstractmethod
    def transpose(self, axes: Any = None) -> JAXSparse:
        """Its dims in the order `axes`; reversed without them."""

    dtype = property(lambda self: self.data.dtype)
    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: math.prod(self.shape))

    @property
    def T(self) -> Any:
        """The transposed array."""
        return self.transpose()

    def block_until_ready(self) -> Self:
        """Itself, once it is computed."""
        for array in tree_leaves(self):
            array.block_until_ready()
        return self

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        counts = "".join(f", {name}={n}" for name in ("n_batch", "n_dense") if (n := getattr(self, name)))
        return f"{type(self).__name__}({self.dtype.name}{list(self.shape)}, nse={self.nse}{counts})"


def is_sparse(x: Any) -> bool:
    """Whether `x` is an array in a sparse format."""
    return isinstance(x, JAXSparse)


def only_sparse_dims(name: str, n_dense: int, n_batch: int) -> None:
    """NotImplementedError unless all dims are sparse."""
    if n_dense or n_batch:
        raise NotImplementedError(
            f"{name} keeps single elements, got n_dense={n_dense} and n_batch={n_batch}; leave them out, or map it with vmap."
        )
