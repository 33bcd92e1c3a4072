"""`shardwise.experimental.shard`: where the switches between automatic and explicit mode began."""

from shardwise.transforms.manual.explicit import auto_axes as auto_axes
from shardwise.transforms.manual.explicit import explicit_axes as explicit_axes
from shardwise.transforms.manual.explicit import reshard as reshard

__all__ = ["auto_axes", "explicit_axes", "reshard"]
