"""Binding and tracing a call: its arguments, leaves, checks and names."""

from typing import TYPE_CHECKING

from shardwise.base.doors import open_door

if TYPE_CHECKING:
    from shardwise.transforms.tracing.arguments import ArgSelection as ArgSelection
    from shardwise.transforms.tracing.arguments import StaticValue as StaticValue
    from shardwise.transforms.tracing.arguments import argument_names as argument_names
    from shardwise.transforms.tracing.arguments import as_nums as as_nums
    from shardwise.transforms.tracing.arguments import check_compiler_options as check_compiler_options
    from shardwise.transforms.tracing.arguments import check_function as check_function
    from shardwise.transforms.tracing.arguments import from_beginning as from_beginning
    from shardwise.transforms.tracing.arguments import select_arguments as select_arguments
    from shardwise.transforms.tracing.blocking import effects_barrier as effects_barrier
    from shardwise.transforms.tracing.blocking import ensure_compile_time_eval as ensure_compile_time_eval
    from shardwise.transforms.tracing.bound_call import BoundCall as BoundCall
    from shardwise.transforms.tracing.bound_call import Statics as Statics
    from shardwise.transforms.tracing.bound_call import check_donation as check_donation
    from shardwise.transforms.tracing.bound_call import key_leaves as key_leaves
    from shardwise.transforms.tracing.bound_call import keyed_tree as keyed_tree
    from shardwise.transforms.tracing.naming import SCOPES as SCOPES
    from shardwise.transforms.tracing.naming import describe as describe
    from shardwise.transforms.tracing.naming import named_scope as named_scope
    from shardwise.transforms.tracing.traced import TYPES_SUFFICE as TYPES_SUFFICE
    from shardwise.transforms.tracing.traced import as_constant as as_constant
    from shardwise.transforms.tracing.traced import as_result as as_result
    from shardwise.transforms.tracing.traced import check_output as check_output
    from shardwise.transforms.tracing.traced import prune as prune
    from shardwise.transforms.tracing.traced import typed_mesh as typed_mesh
    from shardwise.transforms.tracing.traced import with_scalars as with_scalars

__getattr__ = open_door(
    __name__,
    arguments="ArgSelection StaticValue argument_names as_nums check_compiler_options check_function from_beginning select_arguments",
    blocking="effects_barrier ensure_compile_time_eval",
    bound_call="BoundCall Statics check_donation key_leaves keyed_tree",
    naming="SCOPES describe named_scope",
    traced="TYPES_SUFFICE as_constant as_result check_output prune typed_mesh with_scalars",
)
