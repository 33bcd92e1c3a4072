"""`shardwise.extend.ifrt_programs`: programs in the form of a device runtime, which shardwise does not have."""

from typing import Any, NoReturn

from shardwise.base.listing import listing as _listing


class _Programs:
    """Makers of such programs; each call raises NotImplementedError."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("make_"):
            raise AttributeError(f"ifrt_programs has no attribute {name!r}")

        def make(*args: Any, **kwargs: Any) -> NoReturn:
            raise NotImplementedError(
                f"{name}: there is no device runtime to run programs of its own form; compile with jit."
            )

        return make


ifrt_programs = _Programs()

__dir__ = _listing(__name__)
