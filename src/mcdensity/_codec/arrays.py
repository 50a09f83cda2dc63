"""Arrays as `.npy` members; a header is checked before any memory is taken."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np

from mcdensity._codec.archive import ModelFileError

__all__ = ["read_array", "read_header"]

# An array without elements may still claim that it has rows, of which something may be made.
_MOST_EMPTY_ROWS = 1_000_000


def read_array(data: bytes, structured: bool = False) -> Any:
    """Read an .npy member; its header may not claim more than there is."""
    stream = io.BytesIO(data)
    shape, fortran, dtype = read_header(stream)
    start = stream.tell()
    if dtype.kind == "V" and not (structured and dtype.names):
        raise ModelFileError(f"an array holds {dtype}, not numbers or text.")
    if dtype.itemsize == 0 or dtype.itemsize * math.prod(shape) != len(data) - start:
        raise ModelFileError("an array has another size than its header says.")
    if len(data) == start and max(shape, default=0) > _MOST_EMPTY_ROWS:
        raise ModelFileError("an array without elements claims to have very many rows.")
    flat = np.frombuffer(data, dtype=dtype, offset=start)
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
    if any(length < 0 for length in shape):
        raise ModelFileError("an array has a negative length.")
    return shape, fortran, dtype
