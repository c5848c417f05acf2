"""JSON bytes by msgspec. A module of its own, because it is imported when something is first read or written."""

from __future__ import annotations

import functools

import msgspec

__all__ = ["BAD_JSON", "decode", "encode", "encode_sorted"]

encode = msgspec.json.Encoder().encode
encode_sorted = functools.partial(msgspec.json.encode, order="sorted")
decode = msgspec.json.Decoder().decode
BAD_JSON = (msgspec.DecodeError, RecursionError)
"""What :func:`decode` raises for bytes that are not JSON."""
