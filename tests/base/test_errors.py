"""Which errors name a section of docs/errors.md, and that the section shows them."""

from __future__ import annotations

import re

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.base.errors import ShardwiseError, topic_of
from shardwise.cli.help import sections
from shardwise.runtime.processes import DivergenceError
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P


def donated():
    x = jnp.ones(8)
    jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    return x + 1


def escaped():
    kept = []
    jax.jit(lambda x: kept.append(x * 2))(1.0)
    return kept[0] + 1


def disagreeing():
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Explicit,))
    a = jax.device_put(jnp.ones((4, 4)), NamedSharding(mesh, P("x", None)))
    return a + jax.device_put(jnp.ones((4, 4)), NamedSharding(mesh, P(None, "x")))


def on_mesh(spec):
    return NamedSharding(jax.make_mesh((2, 2), ("data", "model")), spec)


def divergence():
    raise DivergenceError("processes 0 and 1 are about to run different programs")


CASES = [
    ("traced-value", lambda: jax.jit(lambda x: 1 if x.sum() > 0 else 2)(jnp.arange(4.0))),
    ("traced-value", lambda: jax.jit(lambda n: sum(range(n)))(3)),
    ("traced-value", lambda: jax.jit(np.sin)(jnp.arange(4.0))),
    ("traced-value", lambda: jax.jit(lambda x: x[x > 1])(jnp.arange(4.0))),
    ("escaped-tracer", escaped),
    ("uneven-dim", lambda: jax.device_put(jnp.arange(5), on_mesh(P("data")))),
    ("mesh-axis", lambda: on_mesh(P("data", "data"))),
    ("mesh-axis", lambda: on_mesh(P("dat"))),
    ("explicit-layouts", disagreeing),
    ("deleted-array", donated),
    ("argument-type", lambda: jax.jit(lambda mode, x: x)("fast", 1.0)),
    ("unbound-axis", lambda: jax.jit(lambda x: jax.lax.psum(x, "data"))(1.0)),
    ("frozen-devices", lambda: jax.devices() and jax.config.update("jax_num_cpu_devices", 3)),
    ("few-devices", lambda: jax.make_mesh((40, 2), ("data", "model"))),
    ("divergence", divergence),
]


@pytest.mark.parametrize(("topic", "fails"), CASES)
def test_errors_name_the_section_that_shows_them(topic, fails):
    with pytest.raises(Exception) as caught:  # of many classes
        fails()
    assert topic_of(caught.value) == topic
    title, text = sections()[topic]
    begin = " ".join(str(caught.value).split()[:3])
    assert topic == "divergence" or begin in text, f"{begin!r} is not under {title!r}"


def test_every_topic_is_a_section_and_the_other_way_round():
    classes, found = [ShardwiseError], set()
    while classes:
        kind = classes.pop()
        found |= {kind.topic} - {""}
        classes += kind.__subclasses__()
    assert found <= sections().keys()
    assert {topic for topic, _ in CASES} | {"not-implemented"} == sections().keys()


def test_other_errors_name_none():
    assert topic_of(ValueError("x")) == topic_of(ShardwiseError("x")) == ""


REPORTED = """
import shardwise as jax, shardwise.numpy as jnp
try:
    {statement}
finally:
    pass
"""


@pytest.mark.parametrize(
    ("statement", "topic"),
    [
        ("jax.jit(lambda x: 1 if x > 0 else 2)(1.0)", "traced-value"),
        ("jax.make_mesh((40, 2), ('data', 'model'))", "few-devices"),
        ("jnp.add(jnp.ones(2), 1.0, out=jnp.zeros(2))", "not-implemented"),
        ("raise NotImplementedError('of the user')", None),
        ("jnp.ones(2) + jnp.ones(3)", None),
    ],
)
def test_reports_name_the_command_that_prints_the_section(shell, statement, topic):
    done = shell("-c", REPORTED.format(statement=statement))
    assert done.returncode == 1
    assert re.findall("shardwise help ([a-z-]+)", done.stderr) == ([topic] if topic else [])


def test_the_command_prints_sections(capsys):
    from shardwise.cli import main

    assert main(["help"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(sections())
    assert main(["help", "uneven-dim"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("A dim that the devices do not divide\n=====") and "Pad the array" in shown
    assert main(["help", "uneven"]) == 2
    assert "there is no topic 'uneven'. Did you mean 'uneven-dim'?" in capsys.readouterr().err
