"""The intermediate representation: typed SSA programs, ops, and the tracing that makes them.

Comes in: op calls on arrays, tracers and literals (`bind`). Goes out: `Program`s, or executed results.
"""

from shardwise.ir.collective import Absorbed as Absorbed
from shardwise.ir.collective import Collective as Collective
from shardwise.ir.keys import ExactParams as ExactParams
from shardwise.ir.keys import exact as exact
from shardwise.ir.keys import exact_items as exact_items
from shardwise.ir.keys import note_params as note_params
from shardwise.ir.keys import params_key as params_key
from shardwise.ir.op import Emit as Emit
from shardwise.ir.op import Fold as Fold
from shardwise.ir.op import Halo as Halo
from shardwise.ir.op import Op as Op
from shardwise.ir.op import UndefinedPrimal as UndefinedPrimal
from shardwise.ir.op import all_ops as all_ops
from shardwise.ir.op import define_op as define_op
from shardwise.ir.op import unwrapped as unwrapped
from shardwise.ir.program import Atom as Atom
from shardwise.ir.program import Equation as Equation
from shardwise.ir.program import Program as Program
from shardwise.ir.program import Var as Var
from shardwise.ir.program import calls_user as calls_user
from shardwise.ir.program import kept_equations as kept_equations
from shardwise.ir.program import live_equations as live_equations
from shardwise.ir.program import map_equations as map_equations
from shardwise.ir.program import map_programs as map_programs
from shardwise.ir.program import source_text as source_text
from shardwise.ir.program import subprograms as subprograms
from shardwise.ir.shown import Shown as Shown
from shardwise.ir.trace import ProgramTrace as ProgramTrace
from shardwise.ir.trace import Trace as Trace
from shardwise.ir.trace import Tracer as Tracer
from shardwise.ir.trace import bind as bind
from shardwise.ir.trace import check_leaks as check_leaks
from shardwise.ir.trace import current_trace as current_trace
from shardwise.ir.trace import eagerly as eagerly
from shardwise.ir.trace import eval_program as eval_program
from shardwise.ir.trace import infer_types as infer_types
from shardwise.ir.trace import install_eager as install_eager
from shardwise.ir.trace import is_eager as is_eager
from shardwise.ir.trace import not_concrete as not_concrete
from shardwise.ir.trace import trace_program as trace_program
from shardwise.ir.trace import tracing as tracing
from shardwise.ir.trace import unexpected_tracer as unexpected_tracer
from shardwise.ir.types import ShapedArray as ShapedArray
from shardwise.ir.value import Array as Array
from shardwise.ir.value import Literal as Literal
from shardwise.ir.value import check_index as check_index
from shardwise.ir.value import check_scalar as check_scalar
from shardwise.ir.value import check_truth as check_truth
from shardwise.ir.value import literal as literal
from shardwise.ir.verifier import ProgramError as ProgramError
from shardwise.ir.verifier import verify as verify
