"""Which errors name a page of docs/errors, and that the page shows them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.base.config import use_dialect
from shardwise.base.errors import DivergenceError, ShardwiseError, topic_of
from shardwise.base.topics import PLACES, topic_at
from shardwise.base.tracebacks import tell_topic
from shardwise.cli.help import pages
from shardwise.plan import plan
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P

SOURCE = Path(jax.__file__).parent


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


def per_device(spec):
    return jax.shard_map(lambda x: x, mesh=jax.make_mesh((4,), ("x",)), in_specs=spec, out_specs=P())


def rule_without_pair():
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda primals, tangents: tangents[0])
    return jax.grad(f)(3.0)


def guarded():
    with jax.transfer_guard("disallow"):
        return jnp.ones(3) + np.ones(3)


def nan():
    with jax.debug_nans(True):
        return jax.jit(jnp.log)(jnp.array([1.0, -1.0]))


def gone():
    with use_dialect("0.10"):
        return jnp.clip(jnp.arange(3), a_max=1)


def divergence():
    raise DivergenceError("processes 0 and 1 are about to run different programs")


CASES = [
    ("traced-value", lambda: jax.jit(lambda x: 1 if x.sum() > 0 else 2)(jnp.arange(4.0))),
    ("traced-value", lambda: jax.jit(lambda n: sum(range(n)))(3)),
    ("traced-value", lambda: jax.jit(cast(Any, np.sin))(jnp.arange(4.0))),
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
    ("shapes", lambda: jnp.ones((8, 3)) + jnp.ones((8, 4))),
    ("shapes", lambda: jnp.ones((8, 3)).reshape(5, 5)),
    ("dtypes", lambda: jax.lax.add(jnp.ones(3), jnp.arange(3))),
    ("dtypes", lambda: jnp.zeros(3, "float33")),
    ("argument-type", lambda: jnp.sum([1, 2])),  # type: ignore[arg-type]
    ("argument-type", lambda: jax.lax.add("a", 1)),
    ("indexing", lambda: jnp.arange(6.0)[1.5]),  # type: ignore[index]
    ("immutable", lambda: cast(Any, jnp.zeros(3)).__setitem__(0, 1.0)),
    ("mapped-dims", lambda: jax.vmap(jnp.add)(jnp.ones((8, 2)), jnp.ones((5, 2)))),
    ("derivatives", lambda: jax.grad(lambda x: x * 2)(jnp.arange(4.0))),
    ("custom-rules", rule_without_pair),
    ("loops-and-branches", lambda: jax.lax.scan(lambda c, x: c, 0.0, jnp.arange(3.0))),  # type: ignore[arg-type,return-value]
    ("trees", lambda: jax.tree.map(jnp.add, [1, 2], (1, 2))),
    ("random-keys", lambda: jax.random.normal(jax.random.split(jax.random.key(0)), (3,))),
    ("static-arguments", lambda: jax.jit(lambda x: x, static_argnums=3)(1.0)),
    ("jit-shardings", lambda: jax.jit(lambda x: jax.lax.with_sharding_constraint(x, P("data")))(jnp.ones(8))),
    ("shard-map", lambda: per_device(P("x"))(jnp.ones(6))),
    ("shard-map", lambda: per_device(P("y"))(jnp.ones(8))),
    ("mesh-axis", lambda: jax.sharding.Mesh(jax.devices(), ("data", "model"))),
    ("devices-differ", lambda: jnp.add(*(jax.device_put(jnp.ones(4), d) for d in jax.devices()[:2]))),
    ("own-parts", lambda: jax.device_put(jnp.ones(8), "cpu")),  # type: ignore[arg-type]
    ("guards", guarded),
    ("nan", nan),
    ("memory", lambda: jnp.ones((1 << 25, 1 << 25)).at[0].set(2.0)),
    ("processes", lambda: jax.distributed.initialize("nowhere", num_processes=2, process_id=0)),
    ("dialect", gone),
    ("export", lambda: jax.export.export(jax.jit(jnp.sin))(jnp.ones((2, 3))).call(jnp.ones((3, 3)))),
    ("plan", lambda: plan(jnp.sin, jnp.ones(3), on="v7z-8")),
]


@pytest.mark.parametrize(("topic", "fails"), CASES)
def test_errors_name_the_page_that_shows_them(topic, fails):
    with pytest.raises(Exception) as caught:  # of many classes
        fails()
    tell_topic(caught.value)  # as where it is shown
    assert topic_of(caught.value) == topic
    title, text = pages()[topic]
    begin = " ".join(str(caught.value).split()[:3])
    assert topic == "divergence" or begin in " ".join(text.split()), f"{begin!r} is not under {title!r}"


def test_every_topic_is_a_page_and_the_other_way_round():
    classes, found = [ShardwiseError], set(PLACES)
    while classes:
        kind = classes.pop()
        found |= {kind.topic} - {""}
        classes += kind.__subclasses__()
    for file in SOURCE.rglob("*.py"):
        said = re.findall(r"""about\(\s*"([\w-]+)"(?: if \w+ else "([\w-]+)")?,""", file.read_text(encoding="utf-8"))
        found |= {topic for topics in said for topic in topics if topic}
    assert found | {"not-implemented"} == pages().keys() == {topic for topic, _ in CASES} | {"not-implemented"}


def test_places_of_topics_are_there_and_raise():
    for topic, places in PLACES.items():
        for place in places.split():
            files = [SOURCE / place] if place.endswith(".py") else list((SOURCE / place).rglob("*.py"))
            assert any(re.search(r"\braise \w", file.read_text(encoding="utf-8")) for file in files), (topic, place)
    named = [place for places in PLACES.values() for place in places.split()]
    assert len(named) == len(set(named))
    assert (topic_at("ops/shapes/reshape.py"), topic_at("ops/new.py"), topic_at("")) == ("shapes", "", "")


def test_what_comes_up_from_python_or_the_user_has_no_page():
    def called(x):
        raise ValueError("of the user")

    for call in (lambda: jax.vmap(called)(jnp.ones(3)), lambda: jax.tree.map(3, (1, 2)), lambda: jnp.eye(1.5)):  # type: ignore[arg-type]
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        tell_topic(caught.value)
        assert topic_of(caught.value) == ""


def test_the_index_links_to_every_page():
    text = (SOURCE.parents[1] / "docs" / "errors.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\(errors/([\w-]+)\.md\)", text)) == sorted(pages())


def test_other_errors_name_none():
    assert topic_of(ValueError("x")) == topic_of(ShardwiseError("x")) == ""
    of_the_user = ValueError("x")
    of_the_user.topic = "orders"  # type: ignore[attr-defined]
    assert topic_of(of_the_user) == ""


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
        ("jnp.ones(2) + jnp.ones(3)", "shapes"),
        ("jax.vmap(lambda x: jnp.dot(x, jnp.ones(3)))(jnp.ones((2, 2)))", "shapes"),
        ("x = jnp.ones(3); x[0] = 1", "immutable"),
        ("jnp.ones(3).meen()", None),
    ],
)
def test_reports_name_the_command_that_prints_the_page(shell, statement, topic):
    done = shell("-c", REPORTED.format(statement=statement))
    assert done.returncode == 1
    assert re.findall("shardwise help ([a-z-]+)", done.stderr) == ([topic] if topic else [])


def test_the_command_prints_pages(capsys):
    from shardwise.cli import main

    assert main(["help"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(pages())
    assert main(["help", "uneven-dim"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("A dim that the devices do not divide\n=====") and "Pad the array" in shown
    assert main(["help", "uneven"]) == 2
    assert "there is no topic 'uneven'. Did you mean 'uneven-dim'?" in capsys.readouterr().err
