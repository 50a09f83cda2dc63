"""Random number generators and sparse matrices from a file: checked before numpy takes them."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np
from scipy import sparse

from mcdensity._codec.archive import ModelFileError, expect, read_member
from mcdensity._codec.arrays import read_array

__all__ = ["generator_of", "matrix_of", "random_state_of", "read_sparse"]

_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
# Sizes of the buffers into which positions point; numpy does not check these.
_POSITIONS = {"MT19937": ("pos", 624), "Philox": ("buffer_pos", 4)}
# What archives inside of a learner may unpack to, in bytes.
_LARGEST_NESTED = 64 << 20


def generator_of(state: Any) -> np.random.Generator:
    """Return a generator in this state."""
    return np.random.Generator(_bits(state))


def random_state_of(state: Any) -> np.random.RandomState:
    """Return numpy's older generator in this state."""
    out = np.random.RandomState(_bits(state))
    gauss, cached = state.get("has_gauss", 0), state.get("gauss", 0.0)
    if gauss not in (0, 1) or not isinstance(cached, float):
        raise ModelFileError("a random number generator has an impossible state.")
    out.set_state(state)
    return out


def _bits(state: Any) -> Any:
    name = expect(state, dict).get("bit_generator")
    if name not in _GENERATORS:
        raise ModelFileError("its content has an unknown random number generator.")
    inner = expect(state.get("state"), dict)
    key, most = _POSITIONS.get(name, ("", 0))
    if key:
        place = inner.get(key, state.get(key))
        if isinstance(place, bool | np.bool_) or not isinstance(place, int | np.integer):
            raise ModelFileError("a random number generator has no position.")
        if not 0 <= place <= most:
            raise ModelFileError(f"a random number generator has the position {place}.")
    bits = getattr(np.random, name)(0)
    bits.state = state
    return bits


def matrix_of(kind: str, parts: dict[str, Any]) -> Any:
    """Return a sparse matrix; scipy's own code does not check where its indices point."""
    if kind not in ("csr", "csc"):
        raise ModelFileError(f"a sparse matrix has the format {kind[:20]!r}.")
    data, indices, indptr = (np.asarray(parts[name]) for name in ("data", "indices", "indptr"))
    shape = tuple(int(length) for length in parts["shape"])
    rows = shape[kind == "csc"]
    fits = data.ndim == indices.ndim == indptr.ndim == 1 and len(data) == len(indices)
    if not fits or len(shape) != 2 or len(indptr) != rows + 1 or data.dtype.kind not in "biuf":
        raise ModelFileError("the parts of a sparse matrix do not fit together.")
    if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu":
        raise ModelFileError("a sparse matrix has indices that are no integers.")
    make = sparse.csr_matrix if kind == "csr" else sparse.csc_matrix
    matrix = make((data, indices, indptr), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


def read_sparse(data: bytes) -> Any:
    """Read what `scipy.sparse.save_npz` wrote: an archive inside of an archive, compressed."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError) as error:
        raise ModelFileError(f"a sparse matrix is damaged ({error}).") from error
    with archive:
        entries = archive.infolist()
        names = [entry.filename for entry in entries]
        if len(set(names)) != len(names) or len(names) > 10:
            raise ModelFileError("a sparse matrix has parts that are not known.")
        # zipfile never unpacks more of a member than its directory says.
        if sum(entry.file_size for entry in entries) > _LARGEST_NESTED:
            raise ModelFileError("a sparse matrix would unpack to more than 64 MB.")
        parts = {
            name.removesuffix(".npy"): read_array(read_member(archive, name)) for name in names
        }
    if not {"format", "data", "indices", "indptr", "shape"} <= set(parts):
        raise ModelFileError("a sparse matrix lacks parts.")
    kind = parts["format"][()]
    matrix = matrix_of(kind.decode() if isinstance(kind, bytes) else str(kind), parts)
    return matrix if "_is_array" not in parts else sparse.csr_array(matrix)
