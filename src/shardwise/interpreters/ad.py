"""`shardwise.interpreters.ad`: derivative rules of new primitives."""

from shardwise.ir.op import UndefinedPrimal as UndefinedPrimal
from shardwise.transforms.derivatives.custom_rules import CustomVJPException as CustomVJPException
from shardwise.transforms.interpreters.jvp import JVPTrace as JVPTrace
from shardwise.transforms.interpreters.jvp import JVPTracer as JVPTracer
from shardwise.transforms.programs.primitives import Zero as Zero
from shardwise.transforms.programs.primitives import defjvp as defjvp
from shardwise.transforms.programs.primitives import defjvp2 as defjvp2
from shardwise.transforms.programs.primitives import deflinear as deflinear
from shardwise.transforms.programs.primitives import deflinear2 as deflinear2
from shardwise.transforms.programs.primitives import instantiate_zeros as instantiate_zeros
from shardwise.transforms.programs.primitives import is_undefined_primal as is_undefined_primal
from shardwise.transforms.programs.primitives import primitive_jvps as primitive_jvps
from shardwise.transforms.programs.primitives import primitive_transposes as primitive_transposes
