"""Devices, the processes that own them, and when they come to be."""

from __future__ import annotations

import copy
import pickle

import pytest

from shardwise.base.config import use_dialect
from shardwise.base.errors import JaxRuntimeError
from shardwise.sharding.backend import (
    devices,
)
from shardwise.sharding.device import Client, Topology


def test_strings_in_both_dialects():
    first = devices()[0]
    assert (str(first), repr(first)) == ("TFRT_CPU_0", "CpuDevice(id=0)")
    with use_dialect("latest"):
        assert (str(first), repr(first)) == ("cpu:0", "CpuDevice(id=0)")


def test_fields():
    one = devices()[1]
    assert (one.id, one.process_index, one.host_id, one.task_id, one.local_hardware_id) == (1, 0, 0, 0, 1)
    assert (one.platform, one.device_kind) == ("cpu", "cpu")
    assert one.client.devices() == devices() and one.client.platform == "cpu"


def test_identity_only():
    first, second = devices()[:2]
    assert first != second and hash(first) == hash(first)
    with pytest.raises(TypeError):
        _ = first < second  # type: ignore[operator]
    for act in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot pickle 'Device' object"):
            act(first)


def test_memories():
    first, second = devices()[:2]
    assert [memory.kind for memory in first.addressable_memories()] == ["unpinned_host"]
    assert repr(second.default_memory()) == "UNPINNED_HOST_1"
    assert str(first.default_memory()) == "UnpinnedHostMemorySpace(id=0, process_index=0, client=cpu)"
    assert first.default_memory().addressable_by_devices() == [first]
    text = "memory kinds: unpinned_host. Got memory kind: foo"
    with pytest.raises(JaxRuntimeError, match=text):
        first.memory("foo")
    with use_dialect("latest"):
        assert repr(first.addressable_memories()) == "[CPU_DEVICE_0, PINNED_HOST_1, UNPINNED_HOST_2]"
        assert first.memory("pinned_host").kind == "pinned_host"
        assert str(first.default_memory()) == "CpuDeviceMemory(id=0, process_index=0, client=cpu)"


@pytest.mark.parametrize(("dialect", "stride"), [("seed", 131072), ("latest", 2048)])
def test_several_processes(dialect, stride):
    with use_dialect(dialect):
        client = Client(Topology(process_index=1, process_count=3, devices_per_process=(2, 3, 1)))
    assert [device.id for device in client.devices()] == [0, 1, stride, stride + 1, stride + 2, 2 * stride]
    assert [device.process_index for device in client.devices()] == [0, 0, 1, 1, 1, 2]
    assert [device.local_hardware_id for device in client.devices()] == [None, None, 0, 1, 2, None]
    assert client.first_local_device().id == stride and client.local_device_count() == 3
    assert client.local_devices(2)[0].id == 2 * stride and client.device_count() == 6
    with pytest.raises(ValueError, match="counts 2 processes"):
        Client(Topology(0, 2, (1, 1, 1)))


def test_thousands_of_devices():
    client = Client(Topology(devices_per_process=4096))
    assert client.device_count() == 4096
