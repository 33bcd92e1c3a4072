"""`mesh`: meshes, and those that are current."""

from shardwise.interpreters.pxla import thread_resources as thread_resources
from shardwise.sharding import AbstractMesh as AbstractMesh
from shardwise.sharding import AxisType as AxisType
from shardwise.sharding.context import get_abstract_mesh as get_abstract_mesh
from shardwise.sharding.context import get_concrete_mesh as get_concrete_mesh
from shardwise.sharding.mesh import Mesh as Mesh
