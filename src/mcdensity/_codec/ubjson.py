"""Universal Binary JSON, as far as xgboost uses it: numbers, text, arrays, objects."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from mcdensity._codec.archive import ModelFileError

__all__ = ["read_ubjson", "write_ubjson"]

_NUMBERS = {"i": "b", "U": "B", "I": ">h", "l": ">i", "L": ">q", "d": ">f", "D": ">d"}
_CODES = {np.dtype(format_): code for code, format_ in _NUMBERS.items()}
_DEEPEST = 50


def read_ubjson(data: bytes) -> Any:
    """Return dicts, lists, text, numbers, and arrays of numpy where all elements have one type."""
    reader = _Reader(data)
    value = reader.value(reader.code(), 0)
    if reader.place != len(data):
        raise ModelFileError("a booster has something behind its end.")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def take(self, size: int) -> bytes:
        start, self.place = self.place, self.place + size
        if size < 0 or self.place > len(self.data):
            raise ModelFileError("a booster ends too early.")
        return self.data[start : self.place]

    def code(self) -> str:
        return self.take(1).decode("latin1")

    def number(self, code: str) -> Any:
        if code not in _NUMBERS:
            raise ModelFileError(f"a booster has an unknown type {code!r}.")
        return struct.unpack(_NUMBERS[code], self.take(struct.calcsize(_NUMBERS[code])))[0]

    def length(self, code: str | None = None) -> int:
        out = self.number(code or self.code())
        if not isinstance(out, int) or out < 0:
            raise ModelFileError("a booster has an impossible length.")
        return out

    def text(self, code: str | None = None) -> str:
        try:
            return self.take(self.length(code)).decode()
        except UnicodeDecodeError as error:
            raise ModelFileError("a booster has text that is none.") from error

    def value(self, code: str, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ModelFileError("a booster is nested deeper than any.")
        if code == "{":
            return self.object(depth)
        if code == "[":
            return self.array(depth)
        if code == "S":
            return self.text()
        if code in "TFZ":
            return {"T": True, "F": False, "Z": None}[code]
        return self.number(code)

    def object(self, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        while (code := self.code()) != "}":
            key = self.text(code)
            if key in out:
                raise ModelFileError("a booster has two entries of the same name.")
            out[key] = self.value(self.code(), depth + 1)
        return out

    def array(self, depth: int) -> Any:
        code = self.code()
        if code == "$":
            kind = self.code()
            if kind not in _NUMBERS or self.code() != "#":
                raise ModelFileError("a booster has an array of an unknown type.")
            kind_ = np.dtype(_NUMBERS[kind])
            return np.frombuffer(self.take(self.length() * kind_.itemsize), dtype=kind_)
        if code == "#":
            return [self.value(self.code(), depth + 1) for _ in range(self.length())]
        out = []
        while code != "]":
            out.append(self.value(code, depth + 1))
            code = self.code()
        return out


def write_ubjson(value: Any) -> bytes:
    """Return the bytes of what `read_ubjson` returns."""
    out: list[bytes] = []
    _write(value, out)
    return b"".join(out)


def _write(value: Any, out: list[bytes]) -> None:
    if isinstance(value, dict):
        out.append(b"{")
        for key, inner in value.items():
            _write_text(key, out)
            _write(inner, out)
        out.append(b"}")
    elif isinstance(value, np.ndarray):
        code = _CODES[value.dtype]
        out += [b"[$", code.encode(), b"#L", struct.pack(">q", len(value)), value.tobytes()]
    elif isinstance(value, list):
        out += [b"[#L", struct.pack(">q", len(value))]
        for inner in value:
            _write(inner, out)
    elif isinstance(value, str):
        out.append(b"S")
        _write_text(value, out)
    elif isinstance(value, bool):
        out.append(b"T" if value else b"F")
    elif isinstance(value, int):
        out += [b"L", struct.pack(">q", value)]
    else:
        out += [b"d", struct.pack(">f", value)]  # all that xgboost has


def _write_text(text: str, out: list[bytes]) -> None:
    data = text.encode()
    out += [b"L", struct.pack(">q", len(data)), data]
