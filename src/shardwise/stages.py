"""`shardwise.stages`: the types of ahead-of-time compilation, for annotations and isinstance tests."""

from shardwise.transforms.aot import ArgInfo as ArgInfo
from shardwise.transforms.aot import Compiled as Compiled
from shardwise.transforms.aot import Lowered as Lowered
from shardwise.transforms.aot import OutInfo as OutInfo
from shardwise.transforms.aot import Traced as Traced
from shardwise.transforms.jit import JitWrapped as Wrapped

__all__ = ["ArgInfo", "Compiled", "CompilerOptions", "Lowered", "OutInfo", "Traced", "Wrapped"]

CompilerOptions = dict[str, str | bool]
