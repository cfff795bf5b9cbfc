"""Tests payloads that ride inside a control message."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tests.transport.test_plane_contract import ODD
from transport.base import Bits, Block, Blocks, Inline, Layout, Ref, inline, unpack
from transport.errors import PlaneError

_DECODER = msgspec.msgpack.Decoder(Blocks)


def crossed(payload: Blocks) -> Blocks:
    return _DECODER.decode(msgspec.msgpack.encode(payload))


def test_what_is_packed_is_unpacked_as_it_was() -> None:
    payload = crossed(inline(ODD))
    assert isinstance(payload, Inline)
    arrays = unpack(payload)
    assert list(arrays) == list(ODD)
    for name, array in ODD.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array, strict=True)
        assert not arrays[name].flags.writeable


def test_nothing_contiguous_is_copied() -> None:
    source = np.arange(1000, dtype=np.float32).reshape(10, 100)
    packed = inline({"x": source})
    assert np.shares_memory(unpack(packed)["x"], source)
    message = msgspec.msgpack.encode(packed)
    payload = _DECODER.decode(message)
    assert isinstance(payload, Inline)
    assert np.shares_memory(unpack(payload)["x"], np.frombuffer(message, np.uint8))


def test_payloads_are_equal_by_their_bytes() -> None:
    one, same, other = (inline({"x": np.array(values, np.int16)}) for values in ([1, 2], [1, 2], [1, 3]))
    assert one == same == crossed(one)
    assert one != other
    assert "x" in repr(one)


def test_a_payload_is_text_in_json() -> None:
    text = msgspec.json.encode(inline({"x": np.array([1, 2], np.int16)}))
    assert b'"data":"AQACAA=="' in text
    assert msgspec.json.decode(text, type=Blocks) == inline({"x": np.array([1, 2], np.int16)})


def test_the_source_can_not_be_written_through_the_message() -> None:
    assert inline({"x": np.zeros(4)}).blocks[0].data.readonly


def test_bits_keep_the_name_of_their_dtype() -> None:
    payload = inline({"hidden": Bits("bfloat16", np.array([0x3F80], np.uint16))})
    assert payload.blocks[0].dtype == "bfloat16"
    np.testing.assert_array_equal(unpack(payload)["hidden"], np.array([0x3F80], np.uint16), strict=True)


@pytest.mark.parametrize(
    "block",
    [
        Block("x", "<i2", (3,), memoryview(b"1234")),
        Block("x", "<i2", (-1,), memoryview(b"1234")),
        Block("x", "O", (1,), memoryview(bytes(8))),
        Block("x", "V4", (1,), memoryview(b"1234")),
        Block("x", "nonsense", (1,), memoryview(b"1234")),
    ],
    ids=["too short", "a negative shape", "objects", "raw", "no dtype"],
)
def test_a_block_that_does_not_hold_what_it_says_is_refused(block: Block) -> None:
    with pytest.raises(PlaneError):
        unpack(Inline((block,)))


def test_a_reference_crosses_with_its_layout() -> None:
    ref = Ref("p", 1, 2, (Layout("pcm", "<i2", (3, 4), 64),))
    assert crossed(ref) == ref
    assert len(msgspec.msgpack.encode(ref)) < 64
