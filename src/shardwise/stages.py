"""`shardwise.stages`: the types of ahead-of-time compilation, for annotations and isinstance tests."""

from shardwise.transforms.jit.aot import ArgInfo as ArgInfo
from shardwise.transforms.jit.aot import Compiled as Compiled
from shardwise.transforms.jit.aot import Lowered as Lowered
from shardwise.transforms.jit.aot import OutInfo as OutInfo
from shardwise.transforms.jit.aot import Traced as Traced
from shardwise.transforms.jit.jit import JitWrapped as Wrapped

__all__ = ["ArgInfo", "Compiled", "CompilerOptions", "Lowered", "OutInfo", "Traced", "Wrapped"]

CompilerOptions = dict[str, str | bool]
