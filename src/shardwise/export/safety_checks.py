"""The checks of calls that an exported function may leave out."""

from __future__ import annotations


class DisabledSafetyCheck:
    """A check that `export` and `Exported.call` are to leave out."""

    def __init__(self, description: str) -> None:
        self.description = description  # ``platform`` or ``custom_call:NAME``

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """The check of the platform that the function is called on."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """The check of a custom call, by its name; programs here have none."""
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """The name of the custom call that it is about."""
        kind, _, target = self.description.partition(":")
        return target if kind == "custom_call" else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DisabledSafetyCheck) and self.description == other.description

    def __hash__(self) -> int:
        return hash(self.description)

    def __repr__(self) -> str:
        return self.description
