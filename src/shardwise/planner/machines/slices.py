"""Slices: from the description of a generation and a size to a `Machine`.

TPU slices are tori whose shape follows from a count as Google Cloud's tables give it; GPUs come in nodes behind a switch; CPU clusters
have one device per node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from shardwise.planner.machine import Chip, Level, Machine

Table = Mapping[str, Any]
_CUBE = 4  # 3D tori consist of cubes of 4 x 4 x 4 chips, joined by optical switches


def make_machine(table: Table, name: str, size: str | None, slices: int = 1) -> Machine:
    """The machine of so many slices of that size.

    Raises:
        ValueError: there is no such size, or the description lacks a figure.
    """
    try:
        makers = {"tpu": _tpu, "gpu": _gpu, "cpu": _cpu}
        if table["family"] not in makers:
            raise ValueError(f"{name}: the family {table['family']!r} is none of {', '.join(makers)}.")
        numbers = tuple(int(n) for n in size.split("x")) if size else ()
        if 0 in numbers or slices < 1:
            raise ValueError(f"{name}: a size of 0 is no machine.")
        return makers[table["family"]](table, name, numbers, slices)
    except KeyError as error:
        raise ValueError(f"{name}: the description of the machine lacks {error}.") from error


def usual_names(table: Table) -> Iterator[str]:
    """Names of slices that one meets often."""
    name = table["name"]
    if table["family"] == "tpu":
        most = 256 if table["dims"] == 2 else 2048
        cores = table["cores_per_chip"] if table["counts"] == "cores" else 1
        chips = 1 if table["dims"] == 2 else 4
        while chips <= most:
            yield f"{name}-{chips * cores}"
            chips *= 2
    elif table["family"] == "gpu":
        yield from (f"{name}-{n}" for n in (1, 8, 64, 128, 1024))
    else:
        yield from (f"{name}-{n}x16" for n in (1, 2, 4, 16))


def _tpu(table: Table, name: str, size: tuple[int, ...], slices: int) -> Machine:
    dims, per_chip = table["dims"], table["cores_per_chip"]
    if not size:
        raise ValueError(f"{name}: how many? {table['name']} comes as {', '.join(usual_names(table))}.")
    if len(size) == 1:
        count = size[0]
        if table["counts"] == "cores":
            if count % per_chip:
                near = count - count % per_chip
                raise ValueError(
                    f"{name}: the number counts TensorCores, {per_chip} per chip, and {count} is no multiple: take {near or per_chip} or "
                    f"{near + per_chip}."
                )
            count //= per_chip
        shape = _cube(count, name) if dims == 3 else _plane(count, table["pod"], name)
    else:
        shape = size if len(size) == dims else (*size, 1) if len(size) == dims - 1 else ()
        if not shape:
            raise ValueError(f"{name}: slices of {table['name']} have {dims} dims, as in {'x'.join(['4'] * dims)}.")
        if dims == 2 and max(shape) > table["pod"]:
            raise ValueError(
                f"{name}: a pod of {table['name']} is {table['pod']}x{table['pod']}; take several slices, as in 2x-{name}."
            )
    if dims == 3:
        wrap = tuple(all(n % _CUBE == 0 for n in shape) for _ in shape)
    else:
        wrap = tuple(n == table["pod"] for n in shape)
    chips = math.prod(shape)
    devices_per_chip = table.get("devices_per_chip", 1)
    whole = tuple(table.get("single_host", ()))
    host = tuple(table["host"])
    if whole and all(n <= h for n, h in zip(sorted(shape), sorted(whole), strict=True)):
        host = shape
    host = tuple(math.gcd(h, n) for h, n in zip(host, shape, strict=True))
    figures = {level["name"]: level for level in table["levels"]}
    levels: list[Level] = []
    if devices_per_chip > 1:
        levels.append(_switch(figures["chip"], devices_per_chip))
    ici = figures["ici"]
    levels.append(Level("ici", shape, wrap, False, ici["bandwidth"], ici["latency"]))
    if slices > 1:
        levels.append(_switch(figures["dcn"], slices))
    processes = slices * chips // math.prod(host)
    return Machine(name, _chip(table), tuple(levels), processes, _sources(table), host, tuple(table.get("notes", ())))


def _cube(chips: int, name: str) -> tuple[int, ...]:
    """The shape of a 3D slice: as near to a cube as there is, of full cubes of 4 x 4 x 4 from 64 chips on; the longest dim last."""
    shapes = [
        (a, b, chips // (a * b))
        for a in range(1, round(chips ** (1 / 3)) + 1)
        if chips % a == 0
        for b in range(a, math.isqrt(chips // a) + 1)
        if chips // a % b == 0
    ]
    if chips < _CUBE**3:
        # The flat board of a host is 2x2x1, so what is smaller than a cube grows from it.
        shapes = [s for s in shapes if max(s) <= _CUBE]
        shapes = [(2, 2, 1)] if chips == 4 else shapes
    else:
        shapes = [s for s in shapes if all(n % _CUBE == 0 for n in s)]
    if not shapes:
        raise ValueError(
            f"{name}: no slice has {chips} chips. From 64 chips on, each dim is a multiple of 4 (64, 128, 192, 256, 512, ...); "
            "or give the shape, as in 4x4x8."
        )
    return min(shapes, key=lambda s: (s[2] - s[0], s))


def _plane(chips: int, pod: int, name: str) -> tuple[int, ...]:
    side = 2 ** (int(math.log2(chips)) // 2)
    if side * side != chips and side * side * 2 != chips:
        raise ValueError(f"{name}: slices have 1, 2, 4, 8, ... {pod * pod} chips; or give the shape, as in 4x8.")
    if chips > pod * pod:
        slices, rest = divmod(chips, pod * pod)
        hint = (
            f"take several slices, as in {slices}x-{name.rpartition('-')[0]}-{pod * pod}"
            if not rest
            else "take several slices"
        )
        raise ValueError(f"{name}: a slice has at most {pod * pod} chips; {hint}.")
    return side, chips // side


def _gpu(table: Table, name: str, size: tuple[int, ...], slices: int) -> Machine:
    node = table["node"]
    if len(size) > 2:
        raise ValueError(f"{name}: GPUs come as a count or as GPUs per node x nodes, as in {table['name']}-{node}x16.")
    if len(size) == 2:
        per_node, nodes = size
    else:
        count = size[0] if size else node
        per_node, nodes = (count, 1) if count <= node else (node, count // node)
        if per_node * nodes != count:
            raise ValueError(
                f"{name}: {count} GPUs do not fill nodes of {node}. Take a multiple, or say {table['name']}-GPUSxNODES."
            )
    if per_node > node:
        raise ValueError(f"{name}: a node of {table['name']} has {node} GPUs.")
    nodes *= slices
    inner, outer = table["levels"]
    levels = (_switch(inner, per_node), _switch(outer, nodes)) if nodes > 1 else (_switch(inner, per_node),)
    return Machine(name, _chip(table), levels, nodes, _sources(table), (), tuple(table.get("notes", ())))


def _cpu(table: Table, name: str, size: tuple[int, ...], slices: int) -> Machine:
    if len(size) > 2:
        raise ValueError(f"{name}: clusters come as nodes x cores, as in {table['name']}-2x16.")
    nodes, cores = (size[0] if size else 1), (size[1] if len(size) > 1 else table["cores"])
    one = _chip(table)
    chip = replace(
        one,
        flops={dtype: n * cores for dtype, n in one.flops.items()},
        vector_flops=one.vector_flops * cores,
        transcendental=one.transcendental * cores,
        hbm_bytes=one.hbm_bytes * cores,
        usable_bytes=one.usable_bytes * cores,
        hbm_bandwidth=one.hbm_bandwidth * cores,
        vmem_bytes=one.vmem_bytes * cores,
        vmem_bandwidth=one.vmem_bandwidth * cores,
        units=one.units * cores,
    )
    nodes *= slices
    return Machine(
        name, chip, (_switch(table["levels"][0], nodes),), nodes, _sources(table), (), tuple(table.get("notes", ()))
    )


def _switch(figures: Table, count: int) -> Level:
    return Level(figures["name"], (count,), (False,), True, figures["bandwidth"], figures["latency"])


def _chip(table: Table) -> Chip:
    c = table["chip"]
    return Chip(
        kind=c["kind"],
        platform=c["platform"],
        flops={dtype: float(n) for dtype, n in c["flops"].items()},
        vector_flops=c["vector_flops"],
        hbm_bytes=round(c["hbm_gib"] * 2**30),
        usable_bytes=round(c["usable_gib"] * 2**30),
        hbm_bandwidth=c["hbm_bandwidth"],
        vmem_bytes=round(c["vmem_mib"] * 2**20),
        vmem_bandwidth=c["vmem_bandwidth"],
        tile=c["tile"],
        units=c["units"],
        transcendental=c["transcendental"],
        overhead=c["overhead"],
        element=c.get("element", 0.0),
        updated_element=c.get("updated_element", 0.0),
        combined=c.get("combined", 0.0),
        contended=c.get("contended", 0.0),
        far_lookups=c.get("far_lookups", 1.0),
        grid_step=c.get("grid_step", 0.0),
        steps={name: float(n) for name, n in c.get("steps", {}).items()},
        turns={name: float(n) for name, n in c.get("turns", {}).items()},
        host_bandwidth=c.get("host_bandwidth", 0.0),
    )


def _sources(table: Table) -> tuple[str, ...]:
    return tuple(f"{what}: {where}" for what, where in table.get("sources", {}).items())
