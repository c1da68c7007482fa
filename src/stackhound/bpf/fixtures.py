"""What a program is measured with: packets, and elements of its maps."""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, Final

from stackhound.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

if TYPE_CHECKING:
    from pathlib import Path

#: The first bytes of a capture file, and the order of the others.
BYTE_ORDERS: Final = {
    b"\xd4\xc3\xb2\xa1": "<",
    b"\x4d\x3c\xb2\xa1": "<",  # with nanoseconds
    b"\xa1\xb2\xc3\xd4": ">",
    b"\xa1\xb2\x3c\x4d": ">",
}
FILE_HEADER_BYTES: Final = 24
PACKET_HEADER: Final = "IIII"  # seconds, fraction, captured bytes, bytes


def read_packet(path: Path) -> bytes:
    """The bytes of a file, or the first packet of a capture (pcap).

    Raises:
        UsageError: the capture has none.
    """
    data = path.read_bytes()
    order = BYTE_ORDERS.get(data[:4])
    if order is None:
        return data
    header = data[FILE_HEADER_BYTES : FILE_HEADER_BYTES + struct.calcsize(PACKET_HEADER)]
    begin = FILE_HEADER_BYTES + len(header)
    length = struct.unpack(order + PACKET_HEADER, header)[2] if len(header) == struct.calcsize(PACKET_HEADER) else 0
    packet = data[begin : begin + length]
    if not packet or len(packet) < length:
        raise UsageError(f"{path} has no whole packet", "capture one: tcpdump -c 1 -w FILE")
    return packet


def read_maps(path: Path) -> dict[str, list[tuple[bytes, bytes]]]:
    """Elements of maps: ``[[maps.NAME]]`` with ``key`` and ``value`` in hexadecimal.

    Raises:
        UsageError: the file says something else.
    """
    try:
        document = tomllib.loads(path.read_text())
        return {
            name: [(bytes.fromhex(one["key"]), bytes.fromhex(one["value"])) for one in elements]
            for name, elements in document["maps"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path}: {error}", '[[maps.NAME]] with key = "00000000" and value = "01", in hex') from None
