"""Machines: names, shapes, figures with sources, and places of devices."""

import json
import math
import tomllib
from pathlib import Path
from typing import Any

import pytest

import shardwise.planner.machines as machines
from shardwise.base import config
from shardwise.ir import Op
from shardwise.planner import client_of
from shardwise.planner.machine import Places
from shardwise.planner.machines import algorithms, find, find_kind, here, names, neighbours, sizes

FILES = sorted(Path(machines.__file__).parent.glob("*.toml"))


@pytest.mark.parametrize(
    ("name", "devices", "processes", "shape"),
    [  # Google Cloud's tables of slices
        ("v4-8", 4, 1, (2, 2, 1)),
        ("v5p-16", 8, 2, (2, 2, 2)),
        ("v5p-64", 32, 8, (2, 4, 4)),
        ("v5p-128", 64, 16, (4, 4, 4)),
        ("v5p-256", 128, 32, (4, 4, 8)),
        ("v5p-512", 256, 64, (4, 8, 8)),
        ("v5p-2048", 1024, 256, (8, 8, 16)),
        ("v5p-4096", 2048, 512, (8, 16, 16)),
        ("v5p-12288", 6144, 1536, (16, 16, 24)),
        ("v5e-8", 8, 1, (2, 4)),
        ("v5litepod-16", 16, 4, (4, 4)),
        ("v6e-256", 256, 64, (16, 16)),
        ("v6e:4x8", 32, 8, (4, 8)),
    ],
)
def test_slices_have_the_documented_shapes(name, devices, processes, shape):
    machine = find(name)
    assert (machine.devices, machine.processes, machine.levels[0].shape) == (devices, processes, shape)


@pytest.mark.parametrize(
    ("name", "wrap"),
    [
        ("v5p-32", False),
        ("v5p-128", True),
        ("v5p-2x4x4", False),
        ("v5p-8x8x8", True),
        ("v6e-64", False),
        ("v6e-256", True),
    ],
)
def test_only_whole_tori_wrap_around(name, wrap):
    assert set(find(name).levels[0].wrap) == {wrap}


def test_the_longer_dim_of_half_a_pod_wraps_around():
    assert find("v5e-8x16").levels[0].wrap == (False, True)


def test_a_chip_of_two_devices_is_a_level():
    machine = find("tpu7x-4x4x4")
    assert [level.name for level in machine.levels] == ["chip", "ici"]
    assert machine.devices == 128
    assert find("tpu7x-128").levels == machine.levels  # its number counts TensorCores


def test_slices_and_nodes_are_levels():
    assert [(x.name, x.size) for x in find("2x-v6e-256").levels] == [("ici", 256), ("dcn", 2)]
    assert [(x.name, x.size) for x in find("h100-8x16").levels] == [("nvlink", 8), ("ib", 16)]
    assert find("h100-128").levels == find("h100-8x16").levels
    assert [(x.name, x.size) for x in find("h100-4").levels] == [("nvlink", 4)]
    assert find("a100-40gb-8").chip.hbm_bytes < find("a100-80gb-8").chip.hbm_bytes


def test_a_cluster_scales_with_its_cores():
    few, many = find("cpu-2x8"), find("cpu-2x16")
    assert many.devices == 2
    assert many.chip.flops["float32"] == 2 * few.chip.flops["float32"]
    assert many.chip.hbm_bandwidth == 2 * few.chip.hbm_bandwidth


@pytest.mark.parametrize("name", names())
def test_every_usual_name_is_found(name):
    machine = find(name)
    assert machine.name == name
    assert machine.devices % machine.processes == 0
    assert 0.9 < machine.chip.usable_bytes / machine.chip.hbm_bytes <= 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("v5q-256", "Did you mean 'v5p-256'"),
        ("v5p-256x", r"Did you mean 'v5p-256'\?"),
        ("trilium-256", "'trillium-256'"),
        ("", "There are a100"),
        ("v5p", "v5p-8, v5p-16"),
        ("v5p-7", "no multiple: take 6 or 8"),
        ("v5p-100", "each dim is a multiple of 4"),
        ("v6e-512", "2x-v6e-256"),
        ("v6e-32x8", "several slices"),
        ("h100-12", "do not fill nodes of 8"),
        ("h100-9x2", "a node of h100 has 8 GPUs"),
        ("cpu-0x4", "size of 0"),
    ],
)
def test_what_does_not_exist_raises_and_says_what_does(name, text):
    with pytest.raises(ValueError, match=text):
        find(name)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_figure_has_its_source(path):
    table = tomllib.loads(path.read_text())
    figures = {key for key in table["chip"] if key not in ("kind", "platform")}
    figures |= {f"{level['name']}_{key}" for level in table["levels"] for key in level if key != "name"}
    if table["family"] == "tpu":
        figures |= {"wrap", "host"}
    missing = {key for key in figures if not table["sources"].get(key)}
    assert not missing
    assert {line.partition(":")[0] for line in find(f"{table['name']}-8").sources} >= figures


def test_a_file_of_the_users_own_is_a_machine(tmp_path):
    text = next(p for p in FILES if p.stem == "h100").read_text().replace("node = 8", "node = 4")
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert [(x.name, x.size) for x in find(f"{path}-16").levels] == [("nvlink", 4), ("ib", 4)]
    path.with_name("less.toml").write_text(text.replace("hbm_bandwidth", "speed"))
    with pytest.raises(ValueError, match="lacks 'hbm_bandwidth'"):
        find(str(path.with_name("less.toml")))
    with pytest.raises(FileNotFoundError):
        find(str(tmp_path / "none.toml"))


@pytest.mark.parametrize("name", ["v5e-8", "v5e-16", "v5p-32", "tpu7x-16", "2x-v6e-16", "h100-16", "cpu-3x4"])
def test_places_are_all_different_and_in_order_of_processes(name):
    machine = find(name)
    places = list(Places(machine))
    assert sorted(p.id for p in places) == list(range(machine.devices))
    assert [p.process_index for p in places] == sorted(p.process_index for p in places)
    assert {p.process_index for p in places} == set(range(machine.processes))
    assert len({(p.coords, p.core_on_chip, p.slice_index, p.id) for p in places}) == machine.devices
    if places[0].coords is not None:
        assert len({(p.coords, p.core_on_chip, p.slice_index) for p in places}) == machine.devices
        torus = next(x for x in machine.levels if x.name == "ici")
        assert max(p.coords for p in places) == tuple(n - 1 for n in (*torus.shape, 1)[:3])  # type: ignore[type-var]


def test_hosts_are_squares_of_neighbours():
    places = Places(find("v5e-16"))
    assert [p.coords for p in places[:4]] == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)]
    assert [p.id for p in places[:8]] == [0, 1, 4, 5, 2, 3, 6, 7]
    assert places[-1].coords == (3, 3, 0)
    with pytest.raises(IndexError):
        places[16]


@pytest.mark.parametrize("name", ["v5e-8", "v5e-16", "v5p-32", "tpu7x-16", "2x-v6e-16", "h100-16", "cpu-3x4"])
def test_devices_know_their_places(name):
    places = Places(find(name))
    client = client_of(find(name))
    devices: list[Any] = client.devices()
    for i, (device, place) in enumerate(zip(devices, places, strict=True)):
        shown = None if device.coords is None else tuple(device.coords)
        found = (device.id, device.process_index, device.local_index, shown, device.core_on_chip, device.slice_index)
        assert found == (
            place.id,
            place.process_index,
            place.local_index,
            place.coords,
            place.core_on_chip,
            place.slice_index,
        )
        assert client.position(device) == i
    own = [p.id for p in places if p.process_index == 1 % places.processes]
    assert [d.id for d in client.local_devices(1 % places.processes)] == own
    assert (
        client.local_device_count(1 % places.processes) == len(own)
        and client.first_local_device() is client.devices()[0]
    )


def test_places_are_made_on_demand():
    places = Places(find("v5p-12288"))
    assert len(places) == 6144
    assert places[6143].coords == (15, 15, 23)
    assert math.prod(find("v5p-12288").host) == 4


def test_this_machine_is_measured_once(tmp_path, monkeypatch):
    with config.override("shardwise_cache_dir", str(tmp_path)), config.override("shardwise_cache", True):
        monkeypatch.setattr(here, "_SECONDS", 0.001)
        monkeypatch.setattr(algorithms, "ALGORITHMS", {"lu": algorithms.ALGORITHMS["lu"]})
        for sizes_of in ("_SETS", "_READ", "_DOWN", "_PACKED", "_TABLES"):
            monkeypatch.setattr(sizes, sizes_of, (1 << 18, 1 << 20))
        here.this_machine.cache_clear()
        machine = find("here")
        assert machine.devices == machine.processes == 1
        chip = machine.chip
        assert 1e9 < chip.hbm_bandwidth < 1e13
        assert 1e6 < chip.vector_flops < 1e15 and 1e6 < chip.flops["float32"] < 1e15
        assert 1e-8 < chip.overhead < 1e-2
        assert chip.usable_bytes >= 2**29
        assert chip.rates is not None and chip.taken is not None and chip.put is not None
        assert all(1e7 < rate < 1e13 for curve in chip.rates for _, rate in curve)
        assert all(0 <= costs.at(width, 1 << 20) < 1e-3 for costs in (chip.taken, chip.put) for width in (4, 100, 4096))
        assert all(cost >= 0 for cost in chip.function_costs.values())
        assert {op.name for op in chip.function_costs if isinstance(op, Op)} >= {"exp", "erf", "erf_inv_giles", "rem"}
        kinds = {(key[0].name, key[1]) for key in chip.function_costs if isinstance(key, tuple)}
        assert kinds >= {("div", "i"), ("abs", "c"), ("argmax", "f"), ("argmax", "down")}
        assert 0 < chip.chained < 1e-3 and all(
            isinstance(c, tuple) and all(s > 0 for _, s in c) for c in chip.steps.values()
        )
        monkeypatch.setattr(here, "measure", lambda: pytest.fail("measured again"))
        here.this_machine.cache_clear()
        assert find("here") == machine
        monkeypatch.undo()
        monkeypatch.setattr(here, "_stamp", lambda: ["another processor"])
        monkeypatch.setattr(
            here, "measure", lambda: json.loads((tmp_path / "here.json").read_text())["figures"] | {"call": 1.0}
        )
        here.this_machine.cache_clear()
        assert find("here").chip.overhead == 1.0
    here.this_machine.cache_clear()


@pytest.mark.parametrize(
    ("kind", "devices", "name", "there"),
    [
        ("TPU v5p", 100, "v5p-256", 128),
        ("TPU v5 lite", 256, "v5e-256", 256),
        ("TPU v5 lite", 600, "3x-v5e-256", 768),
        ("NVIDIA H100 80GB HBM3", 16, "h100-64", 64),
    ],
)
def test_the_smallest_machine_of_a_kind(kind, devices, name, there):
    machine = find_kind(kind, devices)
    assert machine is not None
    assert (machine.name, machine.devices, machine.chip.kind) == (name, there, kind)
    assert find(name) == machine


def test_no_machine_has_chips_of_that_kind():
    assert find_kind("Some later chip", 4) is None


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("v5p-256", ("v5p-128", "v5p-512")),
        ("v6e-8x8", ("v6e-8x4", "v6e-8x16")),
        ("h100-8x16", ("h100-8x8", "h100-8x32")),
        ("2x-v6e-256", ("1x-v6e-256", "4x-v6e-256")),
        ("v5e-1", ("v5e-2",)),
        ("here", ()),
    ],
)
def test_neighbours_have_half_and_twice_the_devices(name, others):
    assert neighbours(name) == others
    sizes = [find(other).devices / find(name).devices for other in others]
    assert sizes == [0.5, 2][-len(others) :] or not others
