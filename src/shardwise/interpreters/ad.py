"""`shardwise.interpreters.ad`: derivative rules of new primitives."""

from shardwise.ir.op import UndefinedPrimal as UndefinedPrimal
from shardwise.transforms.derivatives.custom_rules import CustomVJPException as CustomVJPException
from shardwise.transforms.interpreters.jvp import JVPTrace as JVPTrace
from shardwise.transforms.interpreters.jvp import JVPTracer as JVPTracer
from shardwise.transforms.programs.primitive_rules import Zero as Zero
from shardwise.transforms.programs.primitive_rules import defjvp as defjvp
from shardwise.transforms.programs.primitive_rules import defjvp2 as defjvp2
from shardwise.transforms.programs.primitive_rules import deflinear as deflinear
from shardwise.transforms.programs.primitive_rules import deflinear2 as deflinear2
from shardwise.transforms.programs.primitive_rules import instantiate_zeros as instantiate_zeros
from shardwise.transforms.programs.primitive_rules import is_undefined_primal as is_undefined_primal
from shardwise.transforms.programs.primitive_rules import primitive_jvps as primitive_jvps
from shardwise.transforms.programs.primitive_rules import primitive_transposes as primitive_transposes
