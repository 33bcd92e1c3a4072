"""`shardwise.scipy.spatial.transform`: rotations of three dimensions as unit quaternions, and `Slerp` between them.

A quaternion is (x, y, z, w) along the last dim; one rotation is a vector of four, many are a matrix [n, 4].
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from shardwise import numpy as jnp
from shardwise import random
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array

__all__ = ["Rotation", "Slerp"]

_SMALL = 1e-3  # below this angle series are used, where a quotient of two small numbers would be


def _norm(x: Any) -> Any:
    return jnp.sqrt(jnp.sum(x * x, -1, keepdims=True))


def _product(p: Any, q: Any) -> Any:
    """The quaternion of q's rotation followed by p's."""
    pw, qw = p[..., 3:], q[..., 3:]
    p, q = p[..., :3], q[..., :3]
    return jnp.concatenate([pw * q + qw * p + jnp.cross(p, q), pw * qw - jnp.sum(p * q, -1, keepdims=True)], -1)


def _axes(seq: str, count: int | None = None) -> tuple[list[int], bool]:
    """The axes named in `seq` as numbers, and whether they turn with the body ('XYZ') or stay ('xyz'). ValueError else."""
    if len(seq) != count if count else not 1 <= len(seq) <= 3:
        raise ValueError(
            f"Expected {count or 'axis specification to be a non-empty string of upto 3'} axes, got {seq}."
        )
    intrinsic = all(a in "XYZ" for a in seq)
    if not intrinsic and not all(a in "xyz" for a in seq):
        raise ValueError(f"Expected axes from `seq` to be from ['x', 'y', 'z'] or ['X', 'Y', 'Z'], got {seq}")
    if any(a == b for a, b in itertools.pairwise(seq)):
        raise ValueError(f"Expected consecutive axes to be different, got {seq}")
    return ["xyz".index(a) for a in seq.lower()], intrinsic


class Rotation(NamedTuple):
    """One rotation of three dimensions, or a row of them; made by the `from_...` methods, and a pytree."""

    quat: Any

    @classmethod
    def concatenate(cls, rotations: Any) -> Rotation:
        """Rotations behind each other."""
        return cls(jnp.concatenate([jnp.atleast_2d(r.quat) for r in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """Turns about up to three axes, 'xyz' of the room or 'XYZ' of the body, by angles [number of axes] or [n, of axes]."""
        axes, intrinsic = _axes(seq)
        turns = jnp.atleast_1d(jnp.asarray(angles))
        turns = jnp.deg2rad(turns) if degrees else turns * 1.0
        if turns.shape[-1] < len(axes):
            raise ValueError(f"Expected {len(axes)} angles along the last dim for {seq!r}, got shape {turns.shape}.")
        total = None
        for d, axis in enumerate(axes):
            half = turns[..., d, None] / 2
            one = jnp.where(np.arange(4) == axis, jnp.sin(half), jnp.where(np.arange(4) == 3, jnp.cos(half), 0))
            total = one if total is None else _product(total, one) if intrinsic else _product(one, total)
        return cls(total)

    @classmethod
    def from_matrix(cls, matrix: Any) -> Rotation:
        """From orthogonal matrices [..., 3, 3] of determinant 1."""
        m = jnp.asarray(matrix)
        diagonal = jnp.diagonal(m, axis1=-2, axis2=-1)
        trace = jnp.sum(diagonal, -1, keepdims=True)
        choice = jnp.argmax(jnp.concatenate([diagonal, trace], -1), -1)[..., None]
        skew = jnp.stack([m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]], -1)
        # Row i of this is 4 q_i (x, y, z): the largest entry is the safest to divide by, which normalizing does.
        rows = (
            m + jnp.swapaxes(m, -1, -2) + (1 - trace[..., None]) * jnp.broadcast_to(jnp.eye(3, dtype=m.dtype), m.shape)
        )
        candidates = jnp.concatenate([rows, skew[..., None]], -1)
        last = jnp.concatenate([skew, 1 + trace], -1)
        quat = jnp.where(
            choice == 3, last, jnp.take_along_axis(candidates, jnp.minimum(choice, 2)[..., None], -2)[..., 0, :]
        )
        return cls(quat / _norm(quat))

    @classmethod
    def from_mrp(cls, mrp: Any) -> Rotation:
        """From modified Rodrigues parameters [..., 3]: axis times the tangent of a quarter of the angle."""
        p = jnp.asarray(mrp)
        square = jnp.sum(p * p, -1, keepdims=True) + 1
        return cls(jnp.concatenate([2 * p, 2 - square], -1) / square)

    @classmethod
    def from_quat(cls, quat: Any) -> Rotation:
        """From quaternions [..., 4], made units."""
        quat = jnp.asarray(quat)
        return cls(quat / _norm(quat))

    @classmethod
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> Rotation:
        """From axes times angles [..., 3]."""
        v = jnp.deg2rad(rotvec) if degrees else jnp.asarray(rotvec) * 1.0
        square = jnp.sum(v * v, -1, keepdims=True)
        small = square <= _SMALL**2
        angle = jnp.sqrt(jnp.where(small, 1, square))
        scale = jnp.where(small, 0.5 - square / 48 + square * square / 3840, jnp.sin(angle / 2) / angle)
        return cls(jnp.concatenate([scale * v, jnp.where(small, 1 - square / 8, jnp.cos(angle / 2))], -1))

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """No rotation, or `num` of them."""
        quat = jnp.asarray([0.0, 0.0, 0.0, 1.0], dtype=dtype)
        return cls(quat if num is None else jnp.tile(quat, (num, 1)))

    @classmethod
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """A rotation drawn evenly from all of them, or `num`."""

        return cls.from_quat(random.normal(random_key, (4,) if num is None else (num, 4)))

    def __getitem__(self, indexer: Any) -> Rotation:  # type: ignore[override]
        if self.single:
            raise TypeError("Single rotation is not subscriptable.")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        if self.single:
            raise TypeError("Single rotation has no len().")
        return self.quat.shape[0]

    def __mul__(self, other: Any) -> Rotation:  # type: ignore[override]
        return Rotation.from_quat(_product(self.quat, other.quat))

    def apply(self, vectors: Any, inverse: bool = False) -> Array:
        """The vectors [..., 3] turned; with `inverse` turned back."""
        turn = jnp.swapaxes(self.as_matrix(), -1, -2) if inverse else self.as_matrix()
        return jnp.squeeze(turn @ jnp.asarray(vectors)[..., None], -1)

    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """The three angles about axes `seq` that make the rotation. Where the middle one leaves a choice, one is 0."""
        axes, intrinsic = _axes(seq, 3)
        i, j, k = reversed(axes) if intrinsic else axes
        symmetric = i == k
        k = 3 - i - j if symmetric else k
        sign = (i - j) * (j - k) * (k - i) // 2
        x = [self.quat[..., d] for d in range(4)]
        if symmetric:
            a, b, c, d = x[3], x[i], x[j], x[k] * sign
        else:
            a, b, c, d = x[3] - x[j], x[i] + x[k] * sign, x[j] + x[3], x[k] * sign - x[i]
        middle = 2 * jnp.arctan2(jnp.hypot(c, d), jnp.hypot(a, b))
        total, difference = jnp.arctan2(b, a), jnp.arctan2(d, c)
        none, half_turn = jnp.abs(middle) <= 1e-7, jnp.abs(middle - np.pi) <= 1e-7
        near, far = total - difference, total + difference
        alone = jnp.where(none, 2 * total, 2 * difference * (1 if intrinsic else -1))
        is_locked = none | half_turn
        # If two axes coincide, the first angle of `seq` is free and takes the whole rotation; the other is 0.
        first, third = (far, near) if intrinsic else (near, far)
        if not symmetric:
            first, third = (first * sign, third) if intrinsic else (first, third * sign)
            alone = alone * sign if intrinsic else alone
            middle = middle - np.pi / 2
        first, third = jnp.where(is_locked, alone, first), jnp.where(is_locked, 0, third)
        angles = jnp.stack([first, middle, third], -1)
        angles = (angles + np.pi) % (2 * np.pi) - np.pi
        return jnp.rad2deg(angles) if degrees else angles

    def as_matrix(self) -> Array:
        """Orthogonal matrices [..., 3, 3]."""
        x, y, z, w = (self.quat[..., d] for d in range(4))
        xx, yy, zz, ww = x * x, y * y, z * z, w * w
        rows = [
            [xx - yy - zz + ww, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), yy - xx - zz + ww, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), zz - xx - yy + ww],
        ]
        return jnp.stack([jnp.stack(row, -1) for row in rows], -2)

    def as_mrp(self) -> Array:
        """Modified Rodrigues parameters [..., 3]."""
        w = self.quat[..., 3:]
        sign = jnp.where(w < 0, -1.0, 1.0)
        return sign * self.quat[..., :3] / (1 + sign * w)

    def as_rotvec(self, degrees: bool = False) -> Array:
        """Axes times angles [..., 3], the angles up to half a turn."""
        quat = jnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        v, w = quat[..., :3], quat[..., 3:]
        square = jnp.sum(v * v, -1, keepdims=True)
        small = square <= (_SMALL / 2) ** 2
        sine = jnp.sqrt(jnp.where(small, 1, square))
        scale = jnp.where(small, (2 + square / 3), 2 * jnp.arctan2(sine, w) / sine)
        return (jnp.rad2deg(scale) if degrees else scale) * v

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """Quaternions [..., 4]; `canonical` ones have w > 0, or the first of x, y, z that is not 0."""
        quat = self.quat
        if canonical:
            lead = quat[..., 3]
            for d in range(3):
                lead = jnp.where(lead == 0, quat[..., d], lead)
            quat = jnp.where(lead[..., None] < 0, -quat, quat)
        return jnp.roll(quat, 1, -1) if scalar_first else quat

    def inv(self) -> Rotation:
        """The rotations back."""
        return Rotation(jnp.concatenate([-self.quat[..., :3], self.quat[..., 3:]], -1))

    def magnitude(self) -> Array:
        """The angles, from 0 to half a turn."""
        return 2 * jnp.arctan2(_norm(self.quat[..., :3])[..., 0], jnp.abs(self.quat[..., 3]))

    def mean(self, weights: Any = None) -> Rotation:
        """The rotation nearest to all, weighted by `weights` [n]. ValueError for weights of another shape."""
        n = len(self)
        w = jnp.ones(n, self.quat.dtype) if weights is None else jnp.asarray(weights, self.quat.dtype)
        if w.ndim != 1:
            raise ValueError(f"Expected `weights` to be 1 dimensional, got shape {w.shape}.")
        if w.shape[0] != n:
            raise ValueError(
                "Expected `weights` to have number of values equal to number of rotations, "
                f"got {w.shape[0]} values and {n} rotations."
            )
        return Rotation(jnp.linalg.eigh(jnp.dot(w[None, :] * self.quat.T, self.quat))[1][:, -1])

    @property
    def single(self) -> bool:
        """Whether this is one rotation."""
        return self.quat.ndim == 1


class Slerp(NamedTuple):
    """Rotations at times, and at the times between by turning evenly; made by `Slerp.init`, and a pytree."""

    times: Any
    timedelta: Any
    rotations: Rotation
    rotvecs: Any

    @classmethod
    def init(cls, times: Any, rotations: Any) -> Slerp:
        """From increasing times [n] and n rotations, at least 2. TypeError, ValueError for anything else."""
        if not isinstance(rotations, Rotation):
            raise TypeError("`rotations` must be a `Rotation` instance.")
        if rotations.single or len(rotations) == 1:
            raise ValueError("`rotations` must be a sequence of at least 2 rotations.")
        at = jnp.asarray(times, dtype=rotations.quat.dtype)
        if at.ndim != 1:
            raise ValueError(f"Expected times to be specified in a 1 dimensional array, got {at.ndim} dimensions.")
        if at.shape[0] != len(rotations):
            raise ValueError(
                "Expected number of rotations to be equal to number of timestamps given, "
                f"got {len(rotations)} rotations and {at.shape[0]} timestamps."
            )
        starts = Rotation(rotations.quat[:-1])
        return cls(at, jnp.diff(at), starts, (starts.inv() * Rotation(rotations.quat[1:])).as_rotvec())

    def __call__(self, times: Any) -> Rotation:
        """The rotations at `times`, a number or a vector. ValueError for more dims."""
        at = jnp.asarray(times, dtype=self.times.dtype)
        if at.ndim > 1:
            raise ValueError("`times` must be at most 1-dimensional.")
        index = jnp.maximum(jnp.searchsorted(self.times, at) - 1, 0)
        share = (at - self.times[index]) / self.timedelta[index]
        turn = Rotation.from_rotvec(self.rotvecs[index] * share[..., None])
        return Rotation(self.rotations.quat[index]) * turn


__dir__ = _listing(__name__)
