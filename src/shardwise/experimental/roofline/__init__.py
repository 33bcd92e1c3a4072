"""`shardwise.experimental.roofline`: what a function computes, reads and sends on each device, without running it.

In: a function, types of its arguments and perhaps a mesh. Out: a `RooflineResult`, counted on the program that a device runs: loops as
often as they run, and collectives that the partitioner inserted like written ones.
"""

from shardwise.base.listing import listing as _listing
from shardwise.experimental.roofline.result import RooflineResult as RooflineResult
from shardwise.experimental.roofline.result import RooflineRuleContext as RooflineRuleContext
from shardwise.experimental.roofline.result import RooflineShape as RooflineShape
from shardwise.experimental.roofline.roofline import roofline as roofline
from shardwise.experimental.roofline.roofline import roofline_and_grad as roofline_and_grad
from shardwise.experimental.roofline.rules import register_roofline as register_roofline
from shardwise.experimental.roofline.rules import register_standard_roofline as register_standard_roofline

__dir__ = _listing(__name__)
