"""What a line of `face_cases` is asked, of shardwise and of JAX: value, derivatives in both modes and to second order, and maps."""

from __future__ import annotations

import ast
import contextlib
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.transforms.face_calls import PREAMBLE
from tests.transforms.face_cases import OPERANDS, Line

Answer = list[np.ndarray] | str  # flat results, or the name of the class of the error


def namespace(jax: Any) -> dict[str, Any]:
    """The names that lines use, of `jax` (either library)."""
    names = {
        "jax": jax,
        "jnp": jax.numpy,
        "lax": jax.lax,
        "nn": jax.nn,
        "jsp": jax.scipy,
        "np": np,
        "functools": functools,
    }
    for module in ("linalg", "special"):
        __import__(f"{jax.__name__}.scipy.{module}")
    exec(PREAMBLE, names)
    return names


def function_of(names: dict[str, Any], line: Line) -> Callable[..., Any]:
    """The line as a function of its operands."""
    return eval(f"lambda {', '.join(line.letters)}: {line.text}", names)


def operands_of(line: Line, single: bool) -> list[np.ndarray]:
    """The operands in double or single precision."""
    found = [OPERANDS[x] for x in line.letters]
    narrow = {"f": np.float32, "c": np.complex64}
    return [x.astype(narrow[x.dtype.kind]) if single and x.dtype.kind in narrow else x for x in found]


def _along(x: np.ndarray, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(x.shape)
    return (w + 1j * rng.standard_normal(x.shape) if x.dtype.kind == "c" else w).astype(x.dtype)


def _smooth(x: Any) -> bool:
    return np.dtype(x.dtype).kind in "fcV" and "float0" not in str(x.dtype)


def _stacked(x: np.ndarray, axis: int) -> np.ndarray:
    """Two elements: the operand, and another of its kind."""
    other = x * np.asarray(1.05, x.dtype) if x.dtype.kind in "fc" else np.roll(x, 1, -1) if x.ndim else x
    return np.stack([x, other.astype(x.dtype)], axis)


def axes_for(count: int) -> list[tuple[int | None, ...]]:
    """The axes to map over: the first dims; then others, with one operand not mapped if there are several."""
    return [(0,) * count, (-1, None, 0, -1)[:count]]


class Asked:
    """One line's questions."""

    def __init__(self, jax: Any, names: dict[str, Any], line: Line, single: bool, wrap: Callable[..., Any]) -> None:
        self.jax = jax
        self.wrap = wrap
        self.line = line
        self.xs = operands_of(line, single)
        self.arrays = [jax.numpy.asarray(x) for x in self.xs]
        self.fun = function_of(names, line)
        self.smooth = [i for i, x in enumerate(self.xs) if x.dtype.kind in "fc"]

    def _flat(self, *given: Any) -> list[Any]:
        return self.jax.tree_util.tree_leaves(self.fun(*given))

    def _of_smooth(self, xs: Sequence[Any]) -> Callable[..., list[Any]]:
        """The floats among the results, as a function of the differentiated operands."""

        def picked(*values: Any) -> list[Any]:
            full = list(xs)
            for i, value in zip(self.smooth, values, strict=True):
                full[i] = value
            return [y for y in self._flat(*full) if _smooth(y)]

        return picked

    def _pull(self, *xs: Any) -> list[Any]:
        outs, pull = self.jax.vjp(self._of_smooth(xs), *[xs[i] for i in self.smooth])
        return list(
            pull(
                [
                    self.jax.numpy.asarray(_along(np.empty(y.shape, np.dtype(y.dtype)), 5 + k))
                    for k, y in enumerate(outs)
                ]
            )
        )

    def value(self) -> Any:
        return self.wrap(self._flat)(*self.arrays)

    def jvp(self) -> Any:
        def push(*xs: Any) -> Any:
            points = [xs[i] for i in self.smooth]
            along = [_along(self.xs[i], i) for i in self.smooth]
            return self.jax.jvp(self._of_smooth(xs), tuple(points), tuple(along))[1]

        return self.wrap(push)(*self.xs)

    def vjp(self) -> Any:
        return self.wrap(self._pull)(*self.xs)

    def second(self) -> Any:
        def push(*xs: Any) -> Any:
            def pulled(*values: Any) -> Any:
                full = list(xs)
                for i, value in zip(self.smooth, values, strict=True):
                    full[i] = value
                return self._pull(*full)

            points = [xs[i] for i in self.smooth]
            return self.jax.jvp(pulled, tuple(points), tuple(_along(self.xs[i], i) for i in self.smooth))[1]

        return self.wrap(push)(*self.xs)

    def _map(self, fun: Callable[..., Any], axes: tuple[int | None, ...]) -> Any:
        given = [x if a is None else _stacked(x, a) for x, a in zip(self.xs, axes, strict=True)]
        return self.wrap(self.jax.vmap(fun, axes))(*given)

    def maps(self) -> Any:
        return [self._map(self._flat, axes) for axes in axes_for(len(self.xs))]

    def mapped_vjp(self) -> Any:
        return self._map(self._pull, axes_for(len(self.xs))[1])

    def answers(self, which: Sequence[str]) -> dict[str, Answer]:
        """The answers by name of the question."""
        return {name: self._answer(getattr(self, name)) for name in which}

    def _answer(self, ask: Callable[[], Any]) -> Answer:
        try:
            return [np.asarray(x) for x in self.jax.tree_util.tree_leaves(ask())]
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def questions(line: Line, single: bool) -> tuple[str, ...]:
    """What applies to a line in this precision."""
    if ("f32" in line.marks and not single) or ("f64" in line.marks and single):
        return ()
    if "vmap" in line.marks:
        return ("value", "maps")
    asked = ["value", "jvp", "vjp", "second", "maps", "mapped_vjp"]
    if "reverse" in line.marks:
        asked = [a for a in asked if a not in ("jvp", "second")]
    if "first" in line.marks or single:
        asked = [a for a in asked if a != "second"]
    return tuple(asked)


# -- JAX's answers, kept --------------------------------------------------------------------------------------------------------

RECORD = Path(__file__).parent / "faces.npz"


def record_key(line: Line, single: bool, question: str) -> str:
    """The name of an answer in the file."""
    return f"{line.key}{'s' if single else 'd'}{question}"


@functools.cache
def recorded() -> dict[str, Any]:
    """JAX's answers by key: a list of arrays, or the name of an error's class. In single precision types only."""
    with np.load(RECORD) as file:
        texts = dict(zip(file["keys"].tolist(), file["texts"].tolist(), strict=True))
        flat, found, at = file["flat"], {}, 0
        for key, text in texts.items():
            if not text.startswith("["):
                found[key] = text
                continue
            answer = []
            for name, shape, kept in ast.literal_eval(text):
                size = int(np.prod(shape)) * (2 if name.startswith("complex") else 1) if kept else 0
                part, at = flat[at : at + size], at + size
                if kept and name.startswith("complex"):
                    part = part[::2] + 1j * part[1::2]
                answer.append((np.dtype(name), shape, part.reshape(shape) if kept else None))
            found[key] = answer
    return found


def write(answers: dict[str, Answer]) -> None:
    """Add JAX's answers to the file: values in double precision, types alone in single."""
    texts, flat = [], []
    for key, answer in answers.items():
        if isinstance(answer, str):
            texts.append(answer.partition(":")[0])
            continue
        double = key[8] == "d"
        texts.append(repr([(a.dtype.name, a.shape, double) for a in answer]))
        for a in answer if double else ():
            wide = np.atleast_1d(a).astype(np.complex128 if a.dtype.kind == "c" else np.float64)
            flat.append(wide.view(np.float64).ravel())
    keys = np.array(list(answers))
    if RECORD.exists():
        with np.load(RECORD) as old:
            keys, texts = np.concatenate([old["keys"], keys]), [*old["texts"], *texts]
            flat = [old["flat"], *flat]
    np.savez_compressed(RECORD, keys=keys, texts=np.array(texts), flat=np.concatenate(flat))


def record() -> None:
    """Ask JAX about the lines that the file does not have; all of them, half an hour's work, if there is no file."""
    import jax

    from tests.transforms.face_cases import LINES

    known = recorded() if RECORD.exists() else {}
    names, answers = namespace(jax), {}
    for line in [line for lines in LINES.values() for line in lines]:
        for single in (False, True):
            missing = [q for q in questions(line, single) if record_key(line, single, q) not in known]
            if missing:
                with jax.enable_x64(not single):
                    found = Asked(jax, names, line, single, jax.jit).answers(missing)
                answers.update({record_key(line, single, q): a for q, a in found.items()})
    write(answers)


def missed() -> set[str]:
    """The ops with a derivative that no line meets."""
    import shardwise
    from shardwise.experimental import enable_x64
    from shardwise.ir import recording
    from shardwise.ir.op import all_ops
    from tests.transforms.face_cases import LINES

    names, met, inferred = namespace(shardwise), set(), recording.infer_types

    def noted(op: Any, *args: Any, **kwargs: Any) -> Any:
        met.add(op.name)
        return inferred(op, *args, **kwargs)

    recording.infer_types = noted
    for line in [line for lines in LINES.values() for line in lines]:
        single = "f64" not in line.marks
        with contextlib.suppress(Exception), enable_x64(not single):  # some lines are there for their errors
            shardwise.eval_shape(function_of(names, line), *operands_of(line, single))
    ops = all_ops().items()
    return {
        name for name, op in ops if op.jvp is not None or op.transpose is not None or op.linearize is not None
    } - met


if __name__ == "__main__":
    if sys.argv[1:] == ["missed"]:
        print(*sorted(missed()))
    else:
        record()
