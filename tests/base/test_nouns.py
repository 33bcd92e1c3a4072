"""One noun per concept: no class has the name of a class in another room, except those listed here."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import shardwise

# JAX gives these names to several things, each in a namespace of its own.
OF_JAX = {
    "BlockSizes",
    "CompilerParams",
    "DebugInfo",
    "JaxRuntimeError",
    "SegmentIds",
    "ShardMap",
    "Space",
    "Step",
    "Store",
    "Token",
}

# Names that rooms without contact give to things of their own. This list shrinks.
OF_ROOMS = {
    *(
        "Buffer",
        "Frame",
        "Group",
        "Memory",
        "Nest",
        "Part",
        "Pass",
        "Pieces",
        "Place",
        "Places",
        "Plan",
        "Point",
        "Pool",
    ),
    *("Registers", "Target", "Traffic"),
}


def test_no_class_has_the_name_of_another() -> None:
    root = Path(shardwise.__file__).parent
    names = Counter(
        name for path in root.rglob("*.py") for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(), re.MULTILINE)
    )
    assert {name for name, count in names.items() if count > 1} == OF_JAX | OF_ROOMS
