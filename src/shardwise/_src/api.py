"""`api`: the transforms, as a page of JAX's documentation imports them."""

from shardwise.transforms.derivatives.autodiff import grad as grad
from shardwise.transforms.derivatives.autodiff import jvp as jvp
from shardwise.transforms.derivatives.autodiff import vjp as vjp
from shardwise.transforms.interpreters.vmap import vmap as vmap
from shardwise.transforms.jit.jit import jit as jit
