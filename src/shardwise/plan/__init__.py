"""`shardwise plan`: programs run without data, and a plan of each compiled step for a machine that one does not have."""

from shardwise.base.listing import package_listing as _listing
from shardwise.plan.api import advise as advise
from shardwise.plan.api import plan as plan
from shardwise.plan.own_run import OwnRun as OwnRun
from shardwise.plan.own_run import watched_run as watched_run
from shardwise.plan.points import Point as Point
from shardwise.plan.report import terminal as _terminal
from shardwise.plan.search import SearchResult as SearchResult
from shardwise.plan.search import search as search
from shardwise.plan.session import Run as Run
from shardwise.plan.session import StepsDone as StepsDone
from shardwise.plan.session import ValueUnknownError as ValueUnknownError
from shardwise.plan.session import on as on
from shardwise.plan.step import StepLayout as StepLayout
from shardwise.planner import Plan as Plan

Plan.page = _terminal.text

__dir__ = _listing(__name__)
