"""`shardwise plan`: programs run without data, and a plan of each compiled step for a machine that one does not have."""

from shardwise.plan.api import plan as plan
from shardwise.plan.session import Run as Run
from shardwise.plan.session import StepsDone as StepsDone
from shardwise.plan.session import ValueUnknownError as ValueUnknownError
from shardwise.plan.session import on as on
from shardwise.planner import Plan as Plan
