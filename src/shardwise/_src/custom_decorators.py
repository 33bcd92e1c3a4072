"""Classes of functions with rules of their own; `_src.custom_api_util` gives them."""

from typing import TypeVar

Class = TypeVar("Class", bound=type)


def register_custom_decorator_type(cls: Class) -> Class:
    """`cls`: transforms take its instances, as they take all callables."""
    return cls
