"""`shardwise.custom_derivatives`: derivatives given by hand, named as in jax.custom_derivatives."""

from shardwise.transforms.custom_derivatives import CustomVJPPrimal as CustomVJPPrimal
from shardwise.transforms.custom_derivatives import SymbolicZero as SymbolicZero
from shardwise.transforms.custom_derivatives import closure_convert as closure_convert
from shardwise.transforms.custom_derivatives import custom_gradient as custom_gradient
from shardwise.transforms.custom_derivatives import custom_jvp as custom_jvp
from shardwise.transforms.custom_derivatives import custom_vjp as custom_vjp
from shardwise.transforms.custom_derivatives import linear_call as linear_call
from shardwise.transforms.custom_jvp import custom_jvp_op
from shardwise.transforms.custom_vjp import custom_vjp_op
from shardwise.transforms.primitives import primitive_of

zero_from_primal = SymbolicZero.from_primal_value
custom_jvp_call_p = primitive_of(custom_jvp_op)
custom_vjp_call_p = primitive_of(custom_vjp_op)
