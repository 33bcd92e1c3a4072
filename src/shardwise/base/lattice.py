"""The promotion lattice: which type two types share, by name.

In: names of dtypes, or of the weak Python scalars `int*`, `float*`, `complex*`. Out: the name of their least
upper bound. `dtypes` translates between names and values.
"""

from __future__ import annotations

import functools

from shardwise.base.errors import TypePromotionError

_SMALL_FLOATS = (
    "float4_e2m1fn float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 float8_e8m0fnu float8_e4m3b11fnuz "
    "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz"
)
_SMALL_INTS = "int1 uint1 int2 uint2 int4 uint4"

# Each line: a type, and the types directly above it.
STANDARD = f"""
bool     : int*
int*     : {_SMALL_INTS} int8 uint8
uint8    : uint16 int16
uint16   : uint32 int32
uint32   : uint64 int64
uint64   : float*
int8     : int16
int16    : int32
int32    : int64
int64    : float*
float*   : {_SMALL_FLOATS} bfloat16 float16 complex*
bfloat16 : float32
float16  : float32
float32  : float64 complex64
float64  : complex128
complex* : complex64
complex64: complex128
"""
# 64-bit types off: no 64-bit result without a 64-bit operand.
NARROW = STANDARD.replace("uint32   : uint64 int64", "uint32   : uint64 int32")
STRICT = f"""
bool     :
int*     : float* {_SMALL_INTS} int8 int16 int32 int64 uint8 uint16 uint32 uint64
float*   : complex* {_SMALL_FLOATS} bfloat16 float16 float32 float64
complex* : complex64 complex128
"""


def join(order: str, names: tuple[str, ...]) -> str:
    """The least type at or above all `names` in `order`: `STANDARD`, `NARROW` or `STRICT`.

    ValueError for a name outside the lattice, TypePromotionError where the names have no upper bound.
    """
    upper_sets, type_of_upper_set = _upper_sets(order)
    for name in names:
        if name not in upper_sets:
            error = TypeError if name.startswith("key<") else ValueError
            raise error(
                f"promotion does not accept dtypes {', '.join(names)}: {name} takes no part in it. Cast the operands to one type."
            )
    upper_bound = type_of_upper_set.get(functools.reduce(int.__and__, (upper_sets[name] for name in names)))
    if upper_bound is None:
        if order is STRICT:
            reason = "jax_numpy_dtype_promotion='strict' lets a dtype meet only itself and Python scalars"
        elif set(names) & set(_SMALL_FLOATS.split()):
            reason = "floats of 8 bits or less never promote implicitly"
        else:
            reason = "integers of 4 bits or less never promote implicitly"
        raise TypePromotionError(
            f"No implicit promotion joins the dtypes {', '.join(names)}: {reason}. "
            "Cast the operands to one type yourself, for example x.astype('float32')."
        )
    return upper_bound


@functools.cache
def _upper_sets(order: str) -> tuple[dict[str, int], dict[int, str]]:
    """Each type's set of types at or above it, as the bits of an int, and the way back.

    The upper bounds that some types share are the AND of their sets. These bounds have a least one exactly if
    the AND is itself the set of a type, and then that type is it.
    """
    above: dict[str, list[str]] = {}
    for line in order.strip().splitlines():
        name, _, higher = line.partition(":")
        above[name.strip()] = higher.split()
    for name in [name for higher in above.values() for name in higher]:
        above.setdefault(name, [])
    bit = {name: 1 << i for i, name in enumerate(above)}

    @functools.cache
    def upper_set(name: str) -> int:
        return functools.reduce(int.__or__, map(upper_set, above[name]), bit[name])

    sets = {name: upper_set(name) for name in above}
    return sets, {upper: name for name, upper in sets.items()}
