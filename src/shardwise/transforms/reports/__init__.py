"""Reports on a compiled program: its layouts and collectives, its cost, its memory; and on a run: its timeline."""

from typing import TYPE_CHECKING

from shardwise.base.doors import open_door

if TYPE_CHECKING:
    from shardwise.transforms.reports.cost import cost_of as cost_of
    from shardwise.transforms.reports.explain import explanation_of as explanation_of
    from shardwise.transforms.reports.explain import grid_text as grid_text
    from shardwise.transforms.reports.explain import program_text as program_text
    from shardwise.transforms.reports.explain import program_with_layouts as program_with_layouts
    from shardwise.transforms.reports.explanation import Explanation as Explanation
    from shardwise.transforms.reports.memory import MemoryStats as MemoryStats
    from shardwise.transforms.reports.memory import memory_stats as memory_stats
    from shardwise.transforms.reports.profile_data import ProfileData as ProfileData
    from shardwise.transforms.reports.profile_data import ProfileEvent as ProfileEvent
    from shardwise.transforms.reports.profile_data import ProfilePlane as ProfilePlane
    from shardwise.transforms.reports.timeline import Timeline as Timeline
    from shardwise.transforms.reports.timeline import running_timeline as running_timeline
    from shardwise.transforms.reports.xspace import xspace_of as xspace_of

__getattr__ = open_door(
    __name__,
    cost="cost_of",
    explain="explanation_of grid_text program_text program_with_layouts",
    explanation="Explanation",
    memory="MemoryStats memory_stats",
    profile_data="ProfileData ProfileEvent ProfilePlane",
    timeline="Timeline running_timeline",
    xspace="xspace_of",
)
