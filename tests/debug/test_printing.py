"""What compiled programs print: once, per element, per device, in order."""

import logging

import numpy as np
import pytest

import shardwise as sw
from shardwise import debug, lax
from shardwise.ops import control
from shardwise.sharding import AxisType, NamedSharding, P, make_mesh

f32 = np.float32


@pytest.fixture(scope="module")
def mesh():
    return make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


@pytest.mark.parametrize("wrap", [lambda f: f, sw.jit], ids=["eager", "jit"])
def test_formats(wrap, capsys):
    def f(x):
        debug.print("{} and {y}, {name}", x, y=lax.neg(x), name="text")
        debug.print("{x:.3f} {{}}", x=x)
        debug.print("nothing")
        debug.print("{} {}", 3, True)
        return x

    wrap(f)(f32(1.5))
    assert capsys.readouterr().out == "1.5 and -1.5, text\n1.500 {}\nnothing\n3 True\n"


def test_options_first(capsys):
    sw.jit(lambda x: (debug.print(ordered=True)("x={ordered}", ordered=x), x)[1])(np.arange(2))
    assert capsys.readouterr().out == "x=[0 1]\n"


def test_prints_survive_and_come_again(capsys):
    f = sw.jit(lambda x: (debug.print("{}", x), lax.sin(x))[1])
    f(f32(1))
    f(f32(2))
    assert capsys.readouterr().out == "1.0\n2.0\n"


def test_loops_and_branches_print(capsys):
    def f(n):
        def step(i, c):
            control.cond(lax.eq(lax.rem(i, 2), 0), lambda: debug.print("even {}", i), lambda: debug.print("odd {}", i))
            return c

        return control.fori_loop(0, n, step, 0)

    f(3)
    sw.jit(f, static_argnums=0)(2)
    sw.jit(f)(1)
    assert capsys.readouterr().out == "even 0\nodd 1\neven 2\neven 0\nodd 1\neven 0\n"


def test_vmap_prints_each_element_and_grad_each_primal(capsys):
    sw.vmap(lambda x: (debug.print("{}", x), x)[1])(np.arange(3))
    assert capsys.readouterr().out == "0\n1\n2\n"
    sw.grad(lambda x: (debug.print("{}", x), lax.sin(x))[1])(f32(2))
    assert capsys.readouterr().out == "2.0\n"


def test_global_values_print_once(mesh, capsys):
    x = sw.device_put(np.arange(8, dtype=f32), NamedSharding(mesh, P("x")))
    sw.jit(lambda x: (debug.print("{}", x), x)[1])(x)
    assert capsys.readouterr().out == "[0. 1. 2. 3. 4. 5. 6. 7.]\n"


def test_partitioned_prints_the_parts(mesh, capsys):
    x = sw.device_put(np.arange(8, dtype=f32), NamedSharding(mesh, P("x")))
    sw.jit(lambda x: (debug.print("{}", x, partitioned=True), x)[1])(x)
    assert capsys.readouterr().out == "[0. 1. 2. 3.]\n" * 4 + "[4. 5. 6. 7.]\n" * 4


def test_shard_map_prints_a_line_per_device(mesh, capsys):
    def body(x):
        debug.print("{} on {}", x, lax.axis_index(("x", "y")))
        debug.print("same")
        return x

    sw.jit(sw.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(np.arange(4))
    parts = ["[0 1]"] * 4 + ["[2 3]"] * 4
    expected = [f"{part} on {i}" for i, part in enumerate(parts)] + ["same"] * 8
    assert capsys.readouterr().out.splitlines() == expected


def test_mapped_functions_without_results_still_print(mesh, capsys):
    def body(x):
        debug.print("{}", x)
        return ()

    sw.pmap(body)(np.arange(2))
    sw.jit(sw.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=()))(np.arange(2))
    assert capsys.readouterr().out.split() == ["0", "1"] + ["[0]"] * 4 + ["[1]"] * 4


def test_log_goes_to_a_logger(caplog):
    with caplog.at_level(logging.INFO, "shardwise.debug"):
        sw.jit(lambda x: (debug.log("x is {x}", x=x), x)[1])(f32(3))
    assert [r.message for r in caplog.records] == ["x is 3.0"]


def test_callback_gets_arrays_and_other_values():
    seen = []

    def f(x):
        debug.callback(lambda *args, **kwargs: seen.append((args, kwargs)), x, "text", n={"a": x})
        return x

    sw.jit(f)(f32(3))
    ((x, text), kwargs) = seen[0]
    assert isinstance(x, sw.Array) and float(x) == 3 and text == "text" and float(kwargs["n"]["a"]) == 3


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: debug.print("x", x), ValueError, "Unused positional"),
        (lambda x: debug.print("x", x=x), ValueError, "Unused keyword"),
        (lambda x: debug.print("{y}", x=x), KeyError, "y"),
        (lambda x: debug.print("{}"), IndexError, "index"),
        (lambda x: debug.print(x), TypeError, "format string"),
        (lambda x: debug.callback(3, x), TypeError, "callable"),  # type: ignore[arg-type]
        (lambda x: debug.print(ordered=True, x=x)("{x}"), TypeError, "two-call form"),
        (lambda x: debug.log(None, x)("{}"), TypeError, "two-call form"),
        (lambda x: debug.callback(None, x)(lambda x: None), TypeError, "two-call form"),
        (lambda x: debug.callback(lambda x: 1 / 0, x), ZeroDivisionError, "division"),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call(f32(1))


class Quarrelsome:
    """Raises where it is compared."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("compared")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Quarrelsome()"


@pytest.mark.parametrize(
    "make",
    [
        lambda: sw.random.split(sw.random.key(0), 3),
        lambda: np.array(["a", "b"]),
        lambda: np.array([None, 1], object),
        lambda: np.array(["2020", "2021"], "datetime64[Y]"),
        Quarrelsome,
    ],
    ids=["keys", "strings", "objects", "dates", "quarrelsome"],
)
def test_leaves_whose_comparison_is_no_bool(make, capsys):
    for _ in range(2):
        debug.print("{}", make())
    assert capsys.readouterr().out == f"{make()}\n" * 2
