"""As much of the protobuf wire format as traces need: varints, doubles and what has a length.

    field  =  varint(number << 3 | type), then its value

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from stackhound.profile.columns import Numbers

VARINT = 0
FIXED64 = 1
DELIMITED = 2
MASK64 = 2**64 - 1
#: Bytes of a varint of 64 bits.
LONGEST = 10


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; a negative number as its two's complement of 64 bits."""
    if 0 <= value < len(SHORT):
        return SHORT[value]
    value &= MASK64
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


#: The varints of two bytes at most: nearly all lengths, and numbers of texts.
SHORT = [bytes((value,)) for value in range(0x80)]
SHORT += [bytes((value & 0x7F | 0x80, value >> 7)) for value in range(0x80, 0x4000)]


@cache
def tag(number: int, kind: int) -> bytes:
    """What a field begins with. There are as many as the format has fields."""
    return varint(number << 3 | kind)


def integer(number: int, value: int) -> bytes:
    """A field of any integer type that is no fixed or zigzag one, of an enumeration or a truth value."""
    return tag(number, VARINT) + varint(value)


def integers(number: int, values: Numbers) -> list[bytes]:
    """The same for a column of natural numbers, many at a time: a tenth of the time."""
    front = tag(number, VARINT)
    return [front + value for value in varints(values)]


def delimited_integers(number: int, front: bytes, last: int, values: Numbers) -> list[bytes]:
    """Messages that end in a natural number, as the field ``last``, and are otherwise alike: ``front``."""
    inner = front + tag(last, VARINT)
    fronts = [tag(number, DELIMITED) + varint(len(inner) + size) + inner for size in range(LONGEST + 1)]
    return [fronts[len(value)] + value for value in varints(values)]


def varints(values: Numbers) -> list[bytes]:
    """Natural numbers as varints."""
    encoded, ends = _join_varints(values)
    starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
    return [encoded[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _join_varints(values: Numbers) -> tuple[bytes, Numbers]:
    """Natural numbers as varints, one behind the other, and where each one ends: int64 (n,)."""
    rest = values.astype(np.uint64)
    digits = [rest & np.uint64(0x7F)]
    while (rest := rest >> np.uint64(7)).any():
        digits.append(rest & np.uint64(0x7F))
    table = np.stack(digits, axis=1).astype(np.uint8)
    is_more = np.zeros(table.shape, bool)  # whether a higher digit follows
    is_more[:, :-1] = np.logical_or.accumulate(table[:, :0:-1] > 0, axis=1)[:, ::-1]
    is_used = np.ones(table.shape, bool)
    is_used[:, 1:] = is_more[:, :-1]
    encoded = (table | is_more.astype(np.uint8) << np.uint8(7))[is_used]
    return encoded.tobytes(), np.cumsum(is_used.sum(axis=1))


def double(number: int, value: float) -> bytes:
    """A field of the type double."""
    return tag(number, FIXED64) + struct.pack("<d", value)


def delimited(number: int, content: bytes) -> bytes:
    """A field that is a message, or bytes."""
    return tag(number, DELIMITED) + varint(len(content)) + content


def text(number: int, value: str) -> bytes:
    """A field of the type string."""
    return delimited(number, value.encode())
