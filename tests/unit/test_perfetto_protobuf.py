"""The wire format of protobuf, beside protobuf's own encoder."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.internal import encoder
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages

from stackhound.formats.perfetto import protobuf

EDGES = [0, 1, 127, 128, 255, 2**14 - 1, 2**14, 2**14 + 1, 2**21, 2**32, 2**63 - 1, 2**63, 2**64 - 1]


@pytest.mark.parametrize("value", EDGES)
def test_a_number_is_encoded_as_protobuf_does(value):
    assert protobuf.varint(value) == encoder._VarintBytes(value)


def test_a_column_of_numbers_is_encoded_as_each_of_them():
    chance = np.random.default_rng(7)
    numbers = np.concatenate((np.array(EDGES, np.uint64), chance.integers(0, 2**64, 1000, np.uint64) >> np.uint64(17)))
    assert protobuf.varints(numbers) == [protobuf.varint(value) for value in numbers.tolist()]
    assert protobuf.integers(8, numbers[:3]) == [protobuf.integer(8, value) for value in EDGES[:3]]


@pytest.mark.parametrize("numbers", [[], [0], [0, 0], [5]])
def test_short_columns_of_small_numbers_are_right_as_well(numbers):
    assert protobuf.varints(np.array(numbers, np.uint64)) == [bytes((one,)) for one in numbers]


def test_a_negative_number_has_ten_bytes():
    event = messages.TrackEvent()
    event.ParseFromString(protobuf.integer(30, -5))
    assert event.counter_value == -5


def test_messages_that_are_alike_but_for_a_number_are_encoded_as_each_of_them():
    front = protobuf.integer(1, 300)
    expected = [protobuf.delimited(4, front + protobuf.integer(3, value)) for value in EDGES]
    assert protobuf.delimited_integers(4, front, 3, np.array(EDGES, np.uint64)) == expected


def test_a_double_is_encoded_as_protobuf_does():
    event = messages.TrackEvent(double_counter_value=0.1)
    assert protobuf.double(44, 0.1) == event.SerializeToString()
