"""What `explain` says, and what it gives as data."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

N, LAYERS = 16, 12


@pytest.fixture(scope="module")
def mesh():
    return Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("data", "model"))


@pytest.fixture(scope="module")
def state(mesh):
    specs = P(None, "model"), P("model", None)
    weights = [jax.device_put(jnp.ones((N, N)), NamedSharding(mesh, specs[i % 2])) for i in range(LAYERS)]
    return weights, jax.device_put(jnp.ones((8, N)), NamedSharding(mesh, P("data")))


def loss(weights, x):
    for up, down in zip(weights[::2], weights[1::2], strict=True):
        x = x + jnp.tanh(x @ up) @ down
    return (x**2).sum()


@pytest.fixture(scope="module")
def explained(state):
    return jax.jit(jax.grad(loss)).lower(*state).explain()


def test_it_begins_with_a_summary(explained):
    head, summary, *_ = explained.split("\n\n")
    assert head == "loss: 4 devices, mesh ('data': 2, 'model': 2)"
    sent = sum(t.total for t in explained.collectives)
    memory = explained.memory
    assert summary.splitlines()[:3] == [
        "summary",
        f"  peak memory: {memory.peak_memory_in_bytes} bytes per device (arguments {memory.argument_size_in_bytes}, "
        f"results {memory.output_size_in_bytes}, temporaries {memory.temp_size_in_bytes})",
        f"  sends {sent} bytes per device",
    ]
    by_axis = explained.totals("axis")
    assert f"    by axis: {', '.join(f'{a} {n}' for a, n in by_axis.items())}" in summary
    assert set(by_axis) == {"data", "model"} and sum(by_axis.values()) == sent
    assert "test_explain.py:" in summary.splitlines()[-1]


def test_a_program_without_collectives_sends_nothing():
    text = jax.jit(jnp.sin).lower(jnp.ones(4)).explain()
    assert "  sends nothing\n" in text and text.collectives == () and "<table>" not in text._repr_html_()
    assert text.table() == "bytes  times  collective  value  cause  line"


def test_repeated_layers_stand_once(explained, state):
    program = explained.partition("\nprogram\n")[2].partition("\n\n")[0]
    assert program.count(" = tanh ") == 1
    assert "... and the last 6 equations 5 times more, on other values" in program
    assert "... and the last 6 equations 4 times more, on other values" in program  # of the backward pass
    assert jax.jit(jax.grad(loss)).lower(*state).as_text().count(" = tanh ") == LAYERS // 2
    assert "  6 x all_reduce over model of f32[8,16]: " in explained
    assert f"collectives: {len(explained.collectives)}, sending " in explained


def test_layers_that_differ_are_all_there(mesh):
    x = jax.device_put(jnp.ones((8, N)), NamedSharding(mesh, P("data")))

    def chain(x):
        for n in range(1, 12):
            x = jnp.tanh(x) * n
        return x

    text = jax.jit(chain).lower(x).explain()
    assert text.count(" = tanh ") == 11 and "times more" not in text


def test_lines_fit(state):
    lowered = jax.jit(jax.grad(loss)).lower(*state)
    for width in (60, 100):
        text = lowered.explain(width=width)
        assert max(map(len, text.splitlines())) <= width
        assert "test_explain.py:" in text.partition("\nprogram\n")[2]
    assert max(map(len, lowered.explain().splitlines())) > 100  # no terminal: nothing is cut


def test_tables_sort_and_filter(explained):
    rows = [line.split() for line in explained.table().splitlines()[1:]]
    sizes = [int(r[0].replace(",", "")) for r in rows]
    assert sum(sizes) == sum(t.total for t in explained.collectives)
    assert sum(int(r[1]) for r in rows) == len(explained.collectives)
    assert "over data" not in explained.table(axis="model") and "over model" in explained.table(axis="model")
    assert len(explained.table(kind="all_gather").splitlines()) == 1
    assert explained.table(line="test_explain.py") == explained.table()
    over = [line.split("over ")[1].split()[0] for line in explained.table(sort="axis").splitlines()[1:]]
    assert over == sorted(over)
    with pytest.raises(ValueError, match="'size': give one of 'axis', 'kind', 'line', 'cause'"):
        explained.table(sort="size")
    with pytest.raises(ValueError, match="no 'bytes'"):
        explained.totals("bytes")


def test_two_programs_are_compared(explained, state):
    forward = jax.jit(loss).lower(*state).explain()
    said = explained.diff(forward)
    assert "sent: " in said and "results: " in said
    assert "\n- 12 x all_reduce over data of f32[16,16]: " in said
    assert "\n- 5 x all_reduce over model of f32[8,16]: " in said  # 6 of 11 are left
    assert not any(line[0] in "+-" for line in explained.diff(explained).splitlines())
    assert "->" not in explained.diff(explained)


def test_pages(explained, tmp_path):
    explained.save(tmp_path / "e.html")
    page = (tmp_path / "e.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and page.count("<table>") == 1 and "http" not in page
    assert "all_reduce over data" in page and "&#x27;" in page  # quotes are escaped
    explained.save(str(tmp_path / "e.txt"))
    assert (tmp_path / "e.txt").read_text(encoding="utf-8") == explained + "\n"
    with pytest.raises(ValueError, match=r"e\.pdf'\): give a name that ends in \.html or \.txt"):
        explained.save("e.pdf")
    assert pickle.loads(pickle.dumps(explained)) == explained


def test_a_compiled_program_adds_what_compiling_took(state):
    lowered = jax.jit(jax.grad(loss)).lower(*state)
    before, after = lowered.explain(), lowered.compile().explain()
    assert after.startswith(before) and "compiled in" in after[len(before) :]
    assert after.collectives == before.collectives
