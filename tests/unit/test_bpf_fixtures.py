"""What a BPF program is measured with, from files and of Python functions, and which of them are refused."""

from __future__ import annotations

import struct

import pytest

from stackhound.bpf.fixtures import find_context, find_maps, find_packet, read_maps, read_packet
from stackhound.errors import UsageError

PACKET = bytes(range(60))
MAGIC, MAGIC_WITH_NS = 0xA1B2C3D4, 0xA1B23C4D
ETHERNET, RAW_IP, LINUX_COOKED = 1, 101, 113


def capture(*packets, order="<", magic=MAGIC, link_type=ETHERNET):
    header = struct.pack(order + "IHHIIII", magic, 2, 4, 0, 0, 65_535, link_type)
    return header + b"".join(struct.pack(order + "IIII", 1, 2, len(one), 1_500) + one for one in packets)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("magic", [MAGIC, MAGIC_WITH_NS])
def test_the_first_packet_of_a_capture_is_taken(order, magic, tmp_path):
    path = tmp_path / "two.pcap"
    path.write_bytes(capture(PACKET, bytes(99), order=order, magic=magic))
    assert read_packet(path) == PACKET


def test_a_capture_that_says_how_long_checksums_are_is_of_ethernet_too(tmp_path):
    path = tmp_path / "one.pcap"
    path.write_bytes(capture(PACKET, link_type=0x2400_0001))
    assert read_packet(path) == PACKET


def test_any_other_file_is_the_packet_itself(tmp_path):
    path = tmp_path / "packet"
    path.write_bytes(PACKET)
    assert find_packet("packet", tmp_path) == read_packet(path) == PACKET
    assert find_context("packet", tmp_path) == PACKET


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.pcapng", b"\x0a\x0d\x0d\x0a" + bytes(96), "editcap -F pcap in.pcapng out.pcap"),
        ("a", b"\x0a\x0d\x0d\x0a" + bytes(96), "pcapng"),
        ("a.pcap", b"\x34\xcd\xb2\xa1" + bytes(96), "variant of pcap"),
        ("a", b"snoop\0\0\0" + bytes(96), "snoop"),
        ("a.bpf.o", b"\x7fELF" + bytes(96), "a program"),
        ("a.pcap.gz", b"\x1f\x8b\x08" + bytes(96), "compressed"),
        ("a.pcap.zst", b"\x28\xb5\x2f\xfd" + bytes(96), "compressed"),
        ("a.pcap", bytes(96), "no capture in the format pcap"),
        ("a", bytes(65_536), "65,536 bytes"),
        ("a", b"ffff ffff ffff 0000 0000 0000 0800\n", "it is text"),
        ("a", capture(PACKET, link_type=RAW_IP), "type 101"),
        ("a", capture(PACKET, link_type=LINUX_COOKED, order=">"), "type 113"),
        ("a", capture(), "no whole packet"),
        ("a", capture(b""), "no whole packet"),
        ("a", capture(PACKET)[:-1], "no whole packet"),
        ("a", capture(PACKET)[:30], "no whole packet"),
        ("a", capture()[:20], "no whole packet"),
    ],
)
def test_what_has_no_packet_with_an_ethernet_header_is_refused(name, data, told, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError) as error:
        read_packet(tmp_path / name)
    assert told in str(error.value)
    assert error.value.remedy


def test_elements_of_maps_are_read(tmp_path):
    path = tmp_path / "maps.toml"
    path.write_text('[[maps.answers]]\nkey = "00000000"\nvalue = "2a 00 00 00"\n')
    assert read_maps(path) == {"answers": [(bytes(4), b"\x2a\0\0\0")]}
    assert find_maps("maps.toml", tmp_path) == read_maps(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "maps = 3",
        "[maps]\nanswers = 3",
        '[[maps.answers]]\nkey = "00"',
        '[[maps.answers]]\nkey = "0"\nvalue = "00"',
        "[[maps.answers]]\nkey = 0\nvalue = 1",
        "[[",
        "\udcff",
    ],
)
def test_a_mistake_in_a_file_of_maps_is_told_with_its_name(text, tmp_path):
    path = tmp_path / "maps.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=r"maps\.toml"):
        read_maps(path)


MODULE = """
class Made:
    @staticmethod
    def packet():
        print("whatever")
        return bytes(range(60))


def element():
    return {"answers": [(bytes(4), bytearray(b"*000"))]}


def text():
    return "text"


def wrong_key():
    return {"answers": [(0, b"")]}


def broken():
    raise ValueError("no such packet")
"""


def test_python_functions_give_packets_contexts_and_maps(tmp_path):
    (tmp_path / "made.py").write_text(MODULE)
    assert find_packet("made:Made.packet", tmp_path) == PACKET
    assert find_context("made:Made.packet", tmp_path) == PACKET
    assert find_maps("made:element", tmp_path) == {"answers": [(bytes(4), b"*000")]}


def test_each_directory_has_its_own_module_of_a_name(tmp_path):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "made.py").write_text(f"def packet():\n    return {name.encode()!r} * 20\n")
    assert [find_packet("made:packet", tmp_path / name) for name in ("old", "new")] == [b"old" * 20, b"new" * 20]


@pytest.mark.parametrize(
    ("find", "named", "told"),
    [
        (find_packet, "made:text", "a value of type str"),
        (find_packet, "made:element", "did not return bytes"),
        (find_packet, "made:broken", "no such packet"),
        (find_packet, "made:none", "none"),
        (find_packet, "absent:packet", "absent"),
        (find_maps, "made:Made.packet", "did not return a dictionary"),
        (find_maps, "made:wrong_key", "has the type int"),
        (find_packet, "no/such/file", "cannot read"),
        (find_context, "no:such file", "cannot read"),
        (find_maps, "none.toml", "cannot read"),
    ],
)
def test_a_function_that_gives_something_else_is_told(find, named, told, tmp_path):
    (tmp_path / "made.py").write_text(MODULE)
    with pytest.raises(UsageError) as error:
        find(named, tmp_path)
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.remedy
