"""The backend: how many devices it has, and who asks it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shardwise.base import config
from shardwise.base.config import use_dialect
from shardwise.base.overrides import default_device
from shardwise.sharding import backend as backend_module
from shardwise.sharding.backend import (
    backend_initialized,
    default_backend,
    device_count,
    devices,
    host_count,
    host_id,
    host_ids,
    install_topology,
    local_device_count,
    local_devices,
    process_count,
    process_index,
    process_indices,
)
from shardwise.sharding.device import Device, Topology

SOURCE = Path(__file__).parents[2] / "src"


def run(code, **environment):
    program = "from shardwise.base import config\nfrom shardwise.sharding.backend import *\n" + code
    environment = {"PYTHONPATH": str(SOURCE), **environment}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)


def test_listing():
    found = devices()
    assert [device.id for device in found] == list(range(8))
    assert repr(found[:2]) == "[CpuDevice(id=0), CpuDevice(id=1)]"
    assert found == local_devices() == devices("cpu") == local_devices(process_index=0, backend="cpu")
    assert device_count() == local_device_count() == 8 and device_count("cpu") == 8
    assert process_index() == 0 and process_count() == 1 and process_indices() == [0]
    assert default_backend() == "cpu" and backend_initialized()
    assert all(isinstance(device, Device) for device in found)
    assert devices() is not found  # a list of the caller's own


def test_older_names_warn():
    with pytest.warns(UserWarning, match="process_index"):
        assert host_id() == 0
    with pytest.warns(UserWarning, match="process_count"):
        assert host_count() == 1
    with pytest.warns(UserWarning, match="process_indices"):
        assert host_ids() == [0]
    with pytest.warns(UserWarning, match="process_index"):
        assert local_devices(host_id=0) == devices()
    with pytest.warns(DeprecationWarning, match="live_arrays"):
        assert devices()[0].live_buffers() == []


def test_unknown_backends_and_processes():
    with pytest.raises(RuntimeError, match=r"Unknown backend: 'gpu' requested.*Platforms present are: cpu"):
        devices("gpu")
    with pytest.raises(RuntimeError, match=r"Unknown backend foo. Available backends are \['cpu'\]"):
        device_count("foo")
    with pytest.raises(ValueError, match="Unknown process_index 1"):
        local_devices(process_index=1)


def test_count_is_settled_at_first_use():
    devices()
    with pytest.raises(RuntimeError, match=r"jax_num_cpu_devices.*before"):
        config.update("jax_num_cpu_devices", 3)
    with pytest.raises(RuntimeError, match="before"):
        config.update("jax_num_cpu_devices", 8)
    with use_dialect("latest"):
        config.update("jax_num_cpu_devices", config.jax_num_cpu_devices)
    with pytest.raises(RuntimeError, match="before the first use"):
        install_topology(Topology())


@pytest.mark.parametrize(
    ("variables", "code", "count"),
    [
        ({}, "", 1),
        ({"XLA_FLAGS": "--other --xla_force_host_platform_device_count=12"}, "", 12),
        ({"JAX_NUM_CPU_DEVICES": "5", "XLA_FLAGS": "--xla_force_host_platform_device_count=12"}, "", 5),
        ({"JAX_NUM_CPU_DEVICES": "5"}, "config.update('jax_num_cpu_devices', 7)\n", 7),
    ],
)
def test_where_the_count_comes_from(variables, code, count):
    result = run(code + "print(backend_initialized(), device_count(), backend_initialized())", **variables)
    assert result.stdout == f"False {count} True\n", result.stderr


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"JAX_NUM_CPU_DEVICES": "0"}, "at least one device"),
        ({"JAX_PLATFORMS": "cuda"}, "Unable to initialize backend 'cuda'"),
        ({"JAX_PLATFORM_NAME": "gpu"}, "Unable to initialize backend 'gpu'"),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=x"}, "takes a number"),
    ],
)
def test_backends_that_cannot_be(variables, text):
    result = run("devices()", **variables)
    assert "RuntimeError" in result.stderr and text in result.stderr
    assert run("", **variables).returncode == 0  # nothing fails before devices are asked for


def test_default_device():
    third = devices()[2]
    assert backend_module.default_device() is devices()[0]
    with default_device(third):
        assert backend_module.default_device() is third
    with default_device("cpu"):
        assert backend_module.default_device() is devices()[0]
    with pytest.raises(ValueError, match="takes a Device"):
        default_device(3)
    with pytest.raises(RuntimeError, match="Unknown backend"):
        default_device("gpu")
