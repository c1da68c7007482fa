"""What a program is measured with: a packet, a context, and elements of its maps, from files or of Python functions."""

from __future__ import annotations

import json
import string
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from stackhound.bpf import giver
from stackhound.bpf.commands import run_command
from stackhound.errors import UsageError, reason_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

#: By map the elements to write, (key, value).
Elements = dict[str, list[tuple[bytes, bytes]]]

#: The first bytes of a capture file (pcap), and the order of the others.
BYTE_ORDERS: Final = {
    b"\xd4\xc3\xb2\xa1": "<",
    b"\x4d\x3c\xb2\xa1": "<",  # with nanoseconds
    b"\xa1\xb2\xc3\xd4": ">",
    b"\xa1\xb2\x3c\x4d": ">",
}
#: The first bytes of files that no packet begins with: what they are, and what to do.
OTHER_FILES: Final = {
    b"\x0a\x0d\x0d\x0a": ("a capture in the format pcapng", "editcap -F pcap in.pcapng out.pcap"),
    b"\x34\xcd\xb2\xa1": ("a capture in a variant of pcap", "editcap -F pcap in.pcap out.pcap"),
    b"\xa1\xb2\xcd\x34": ("a capture in a variant of pcap", "editcap -F pcap in.pcap out.pcap"),
    b"snoop\0\0\0": ("a capture in the format snoop", "editcap -F pcap in.snoop out.pcap"),
    b"\x7fELF": ("a program", "name the file with the packet"),
    b"\x1f\x8b\x08": ("compressed", "unpack it: gunzip"),
    b"\x28\xb5\x2f\xfd": ("compressed", "unpack it: unzstd"),
    b"\xfd7zXZ\0": ("compressed", "unpack it: unxz"),
}
CAPTURE_NAMES: Final = frozenset({".pcap", ".cap", ".pcapng"})
FILE_HEADER: Final = "IHHIIII"  # magic, version, zone, accuracy, longest packet, link type in the lower 16 bits
PACKET_HEADER: Final = "IIII"  # seconds, fraction, captured bytes, bytes
ETHERNET: Final = 1  # LINKTYPE_ETHERNET, https://www.tcpdump.org/linktypes.html
MOST_PACKET_BYTES: Final = 65_535
TEXT: Final = frozenset(string.printable.encode())
FUNCTION_S: Final = 60.0


def find_packet(named: str, directory: Path = Path()) -> bytes:
    """The packet in a file, or that ``module:function`` returns; the module is looked for in the directory, too.

    Raises:
        UsageError: there is none.
    """
    return _call(named, directory, "bytes") if _is_function(named, directory) else read_packet(directory / named)


def find_context(named: str, directory: Path = Path()) -> bytes:
    """The bytes of a file, or those that ``module:function`` returns."""
    return _call(named, directory, "bytes") if _is_function(named, directory) else _read(directory / named)


def find_maps(named: str, directory: Path = Path()) -> Elements:
    """The elements in a TOML file, or those that ``module:function`` returns."""
    return _call(named, directory, "maps") if _is_function(named, directory) else read_maps(directory / named)


def read_packet(path: Path) -> bytes:
    """The bytes of a file, from the Ethernet header on, or the first packet of a capture (pcap).

    Raises:
        UsageError: it has none, or none with an Ethernet header, or is something else.
    """
    data = _read(path)
    order = BYTE_ORDERS.get(data[:4])
    if order is None:
        _expect_packet(path, data)
        return data
    begin = struct.calcsize(FILE_HEADER)
    try:
        link_type = struct.unpack_from(order + FILE_HEADER, data)[-1] & 0xFFFF
        length = struct.unpack_from(order + PACKET_HEADER, data, begin)[2]
    except struct.error:
        link_type, length = ETHERNET, 0
    if link_type != ETHERNET:
        said = f"{path} was captured from a link of type {link_type}, and has no Ethernet headers"
        raise UsageError(said, "capture on one interface: tcpdump -i eth0 -c 1 -w FILE")
    begin += struct.calcsize(PACKET_HEADER)
    packet = data[begin : begin + length]
    if not packet or len(packet) < length:
        raise UsageError(f"{path} has no whole packet", "capture one: tcpdump -c 1 -w FILE")
    return packet


def _expect_packet(path: Path, data: bytes) -> None:
    for begin, (what, remedy) in OTHER_FILES.items():
        if data.startswith(begin):
            raise UsageError(f"{path} is no packet: it is {what}", remedy)
    if path.suffix in CAPTURE_NAMES:
        raise UsageError(f"{path} is no capture in the format pcap", "capture anew: tcpdump -c 1 -w FILE")
    if len(data) > MOST_PACKET_BYTES:
        raise UsageError(f"{path} is no packet: it has {len(data):,} bytes", "give the bytes of one, or a .pcap")
    if data and TEXT.issuperset(data):
        raise UsageError(f"{path} is no packet: it is text", "give the bytes themselves: xxd -r -p in.hex out.bin")


def read_maps(path: Path) -> Elements:
    """Elements of maps: ``[[maps.NAME]]`` with ``key`` and ``value`` in hexadecimal.

    Raises:
        UsageError: the file says something else.
    """
    data = _read(path)
    try:
        document = tomllib.loads(data.decode())
        return {
            name: [(bytes.fromhex(one["key"]), bytes.fromhex(one["value"])) for one in elements]
            for name, elements in document["maps"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path}: {error}", '[[maps.NAME]] with key = "00000000" and value = "01", in hex') from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        remedy = "name a file, or a Python function: module:function"
        raise UsageError(f"cannot read {path}: {reason_of(error)}", remedy) from error


def _is_function(named: str, directory: Path) -> bool:
    """Files come first, whatever their names."""
    module, colon, path = named.partition(":")
    parts = [*module.split("."), *path.split(".")]
    return bool(colon) and all(part.isidentifier() for part in parts) and not (directory / named).exists()


def _call(named: str, directory: Path, wanted: str) -> Any:  # noqa: ANN401 - bytes or Elements, as wanted
    with tempfile.NamedTemporaryFile(suffix=".json") as output:
        command = (sys.executable, giver.__file__, named, output.name)
        ended = run_command(command, directory, FUNCTION_S)
        if ended.status is None:
            raise UsageError(f"{named} still ran after {FUNCTION_S:g} s", "give a function that returns sooner")
        if ended.status:
            raise UsageError(f"{named} failed: {ended.said}", f"see what it does in Python, in {directory.resolve()}")
        given = json.loads(Path(output.name).read_bytes())
    if wanted not in given:
        expected = "bytes" if wanted == "bytes" else "a dictionary: by map the pairs (key, value), in bytes"
        raise UsageError(f"{named} did not return {expected}", f"return {expected}")
    if wanted == "bytes":
        return bytes.fromhex(given["bytes"])
    return {name: [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in pairs]
            for name, pairs in given["maps"].items()}  # fmt: skip
