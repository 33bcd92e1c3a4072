"""The placement of arrays: devices, meshes, specs, shardings, and the index arithmetic between them.

In: settings. Out: `Sharding` objects; higher layers read two of their members, `device_list` and `tiling(ndim)`.
"""

import typing as _typing

from shardwise.base.doors import open_package as _open_package
from shardwise.sharding.backend import backend_initialized as backend_initialized
from shardwise.sharding.backend import default_backend as default_backend
from shardwise.sharding.backend import device_count as device_count
from shardwise.sharding.backend import devices as devices
from shardwise.sharding.backend import host_count as host_count
from shardwise.sharding.backend import host_id as host_id
from shardwise.sharding.backend import host_ids as host_ids
from shardwise.sharding.backend import local_device_count as local_device_count
from shardwise.sharding.backend import local_devices as local_devices
from shardwise.sharding.backend import process_count as process_count
from shardwise.sharding.backend import process_index as process_index
from shardwise.sharding.backend import process_indices as process_indices
from shardwise.sharding.base_mesh import AbstractDevice as AbstractDevice
from shardwise.sharding.base_mesh import AbstractMesh as AbstractMesh
from shardwise.sharding.base_mesh import AxisType as AxisType
from shardwise.sharding.context import get_abstract_mesh as get_abstract_mesh
from shardwise.sharding.context import get_concrete_mesh as get_concrete_mesh
from shardwise.sharding.context import get_mesh as get_mesh
from shardwise.sharding.context import legacy_mesh as legacy_mesh
from shardwise.sharding.context import set_mesh as set_mesh
from shardwise.sharding.context import use_abstract_mesh as use_abstract_mesh
from shardwise.sharding.context import use_mesh as use_mesh
from shardwise.sharding.derive import sharding_like as sharding_like
from shardwise.sharding.device import Crowding as Crowding
from shardwise.sharding.device import Device as Device
from shardwise.sharding.device import Topology as Topology
from shardwise.sharding.gspmd import GSPMDSharding as GSPMDSharding
from shardwise.sharding.hlo_sharding import HloSharding as HloSharding
from shardwise.sharding.hlo_sharding import OpSharding as OpSharding
from shardwise.sharding.manual_axis_type import ManualAxisType as ManualAxisType
from shardwise.sharding.mesh import Mesh as Mesh
from shardwise.sharding.mesh import make_mesh as make_mesh
from shardwise.sharding.named import NamedSharding as NamedSharding
from shardwise.sharding.pmap_sharding import Chunked as Chunked
from shardwise.sharding.pmap_sharding import NoSharding as NoSharding
from shardwise.sharding.pmap_sharding import PmapSharding as PmapSharding
from shardwise.sharding.pmap_sharding import Replicated as Replicated
from shardwise.sharding.pmap_sharding import ShardedAxis as ShardedAxis
from shardwise.sharding.pmap_sharding import ShardingSpec as ShardingSpec
from shardwise.sharding.pmap_sharding import Unstacked as Unstacked
from shardwise.sharding.positional import PositionalSharding as PositionalSharding
from shardwise.sharding.sharding import Sharding as Sharding
from shardwise.sharding.single_device import SingleDeviceSharding as SingleDeviceSharding
from shardwise.sharding.spec import P as P
from shardwise.sharding.spec import PartitionSpec as PartitionSpec
from shardwise.sharding.tiling import Tiling as Tiling

if _typing.TYPE_CHECKING:  # names that `__getattr__` imports
    from shardwise.transforms.manual.explicit import auto_axes as auto_axes
    from shardwise.transforms.manual.explicit import explicit_axes as explicit_axes
    from shardwise.transforms.manual.explicit import reshard as reshard
else:
    __getattr__, __dir__ = _open_package(__name__)
