"""Environments of clusters that tell JAX how many processes there are. Here MPI tells, so that none is ever present."""

from typing import ClassVar


class ClusterEnv:
    """A kind of cluster. Its subclasses are known by `_cluster_types`."""

    _cluster_types: ClassVar[list[type["ClusterEnv"]]] = []

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        ClusterEnv._cluster_types.append(cls)

    @classmethod
    def is_env_present(cls) -> bool:
        """Whether processes are to be set up by it: never, as `distributed.initialize` asks MPI."""
        return False


class SlurmCluster(ClusterEnv):
    """A cluster that Slurm runs; `srun` starts the processes of MPI."""
