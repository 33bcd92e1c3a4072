"""The scalar types, `bool`, `int32`, `float32` and the rest, from the table of element types; checkers cannot read the table."""

import typing as _typing

from shardwise.base import dtypes as _dtypes

globals().update(_dtypes.SCALAR_TYPES | _dtypes.SCALAR_ALIASES)

if _typing.TYPE_CHECKING:
    from shardwise.base.element_types import ScalarType as _ScalarType

    bool: _ScalarType
    int1: _ScalarType
    int2: _ScalarType
    int4: _ScalarType
    int8: _ScalarType
    int16: _ScalarType
    int32: _ScalarType
    int64: _ScalarType
    uint1: _ScalarType
    uint2: _ScalarType
    uint4: _ScalarType
    uint8: _ScalarType
    uint16: _ScalarType
    uint32: _ScalarType
    uint64: _ScalarType
    float4_e2m1fn: _ScalarType
    float6_e2m3fn: _ScalarType
    float6_e3m2fn: _ScalarType
    float8_e3m4: _ScalarType
    float8_e4m3: _ScalarType
    float8_e8m0fnu: _ScalarType
    float8_e4m3b11fnuz: _ScalarType
    float8_e4m3fn: _ScalarType
    float8_e4m3fnuz: _ScalarType
    float8_e5m2: _ScalarType
    float8_e5m2fnuz: _ScalarType
    bfloat16: _ScalarType
    float16: _ScalarType
    float32: _ScalarType
    float64: _ScalarType
    complex64: _ScalarType
    complex128: _ScalarType
    bool_: _ScalarType
    int_: _ScalarType
    uint: _ScalarType
    float_: _ScalarType
    complex_: _ScalarType
    single: _ScalarType
    double: _ScalarType
    csingle: _ScalarType
    cdouble: _ScalarType
