"""Arrays as `.npy` members; a header is checked before any memory is taken."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np

from mcdensity._codec.archive import ModelFileError

__all__ = ["read_array", "read_header"]


def read_array(data: bytes) -> Any:
    """Read an .npy member; its header may not claim more than there is."""
    stream = io.BytesIO(data)
    shape, fortran, dtype = read_header(stream)
    body = data[stream.tell() :]
    if dtype.kind == "V" or dtype.itemsize * math.prod(shape) != len(body):
        raise ModelFileError("an array has another size than its header says.")
    flat = np.frombuffer(body, dtype=dtype)
    return flat.reshape(shape, order="F" if fortran else "C").copy(order="K")


def read_header(stream: io.BytesIO) -> tuple[tuple[int, ...], bool, Any]:
    try:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(stream)
    except (ValueError, KeyError, SyntaxError) as error:
        raise ModelFileError(f"an array has a damaged header ({error}).") from error
    if dtype.hasobject or dtype.kind not in "biufcSUV":
        raise ModelFileError(f"an array holds {dtype}, not numbers or text.")
    return shape, fortran, dtype
