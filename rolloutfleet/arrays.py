"""Arrays on the wire: little-endian, without pickle, decoded without copying."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rolloutfleet.errors import InvalidGroup

type Ints = npt.NDArray[np.int32]
type Floats = npt.NDArray[np.float32]
type Bytes = npt.NDArray[np.uint8]


def pack_array(array: npt.NDArray[Any]) -> dict[str, Any]:
    """A named extra array: dtype (numpy's little-endian name), shape, raw bytes. Errors: InvalidGroup for objects."""
    if array.dtype.hasobject:
        raise InvalidGroup(f"an extra array has dtype {array.dtype}: only plain numbers travel")
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return {"dtype": little.dtype.str, "shape": list(array.shape), "data": little.tobytes()}


def unpack_array(packed: Mapping[str, Any]) -> npt.NDArray[Any]:
    """The inverse of pack_array, without copying."""
    dtype: np.dtype[Any] = np.dtype(packed["dtype"])
    if dtype.hasobject:
        raise InvalidGroup(f"an extra array has dtype {dtype}: only plain numbers travel")
    array: npt.NDArray[Any] = np.frombuffer(packed["data"], dtype=dtype)
    return array.reshape(packed["shape"])
