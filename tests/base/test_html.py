"""What notebooks show of arrays, meshes, shardings, explanations and plans; what users name is text there."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import shardwise as jax
from shardwise.sharding import AxisType, NamedSharding, PartitionSpec, SingleDeviceSharding, make_mesh

HOSTILE = "<script>alert('&')</script>"


class Balanced(HTMLParser):
    """Notes the tags of a page, and that each is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def shown(value):
    page = Balanced()
    page.feed(value._repr_html_())
    assert page.open == []
    return page.seen, html.unescape(re.sub(r"<[^>]*>", " ", value._repr_html_()))


@pytest.fixture
def mesh():
    return make_mesh((4, 2), (HOSTILE, "y"), axis_types=(AxisType.Auto,) * 2)


def test_a_mesh_is_a_table(mesh):
    tags, text = shown(mesh)
    assert tags == {"table", "caption", "tr", "th", "td"}
    assert "8 devices" in text and re.search(r"y\s+2\s+Auto", text) and HOSTILE in html.unescape(mesh._repr_html_())
    assert shown(mesh.abstract_mesh)[0] == tags


def test_shardings_and_arrays(mesh):
    for sharding in (NamedSharding(mesh, PartitionSpec(HOSTILE)), SingleDeviceSharding(jax.devices()[0])):
        x = jax.device_put(np.arange(8, dtype=np.float32), sharding)
        assert shown(sharding)[0] == shown(x)[0] == {"pre"}
        assert html.unescape(sharding._repr_html_()) == f"<pre>{sharding!r}</pre>"
        assert repr(x) in html.unescape(x._repr_html_()) and repr(sharding) in html.unescape(x._repr_html_())


def test_arrays_without_values_and_of_no_dims(mesh):
    for x in (jax.numpy.float32(1), jax.numpy.zeros((0, 3)), jax.random.key(0)):
        assert shown(x)[0] == {"pre"}


def test_an_explanation_of_hostile_names(mesh):
    def f(x):
        return x.sum()

    f.__name__ = HOSTILE
    x = jax.device_put(np.ones((8, 2), np.float32), NamedSharding(mesh, PartitionSpec(HOSTILE)))
    page = jax.jit(f).lower(x).compile().explain()._repr_html_()
    assert "<script" not in page and "&lt;script&gt;" in page


def test_a_plan_is_the_page_of_the_command():
    from shardwise.plan import on

    def step(x):
        return x @ x

    step.__name__ = HOSTILE
    with on("v5p-16") as run:
        jax.jit(step)(jax.numpy.ones((64, 64)))
    (plan,) = run.plans()
    tags, text = shown(plan)
    assert tags == {"pre"} and f"{HOSTILE} on v5p-16" in text and "memory at the peak" in text
    assert str(plan) in text
    assert re.fullmatch(rf"<Plan of {re.escape(HOSTILE)} on v5p-16: 1 x TPU v5p, fits, .* s a step>", repr(plan))
