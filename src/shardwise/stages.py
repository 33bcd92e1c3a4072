"""`shardwise.stages`: the types of ahead-of-time compilation, for annotations and isinstance tests."""

from shardwise.transforms.jit.compiled import Compiled as Compiled
from shardwise.transforms.jit.stage import ArgInfo as ArgInfo
from shardwise.transforms.jit.stage import OutInfo as OutInfo
from shardwise.transforms.jit.stages import Lowered as Lowered
from shardwise.transforms.jit.stages import Traced as Traced
from shardwise.transforms.jit.wrapped import JitWrapped as Wrapped

__all__ = ["ArgInfo", "Compiled", "CompilerOptions", "Lowered", "OutInfo", "Traced", "Wrapped"]

CompilerOptions = dict[str, str | bool]
