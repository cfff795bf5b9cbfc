"""Makes a voice's model tell how long it speaks each phoneme, by naming one more output of its graph.

A VITS model rounds the lengths that it predicts with its only `Ceil`; what that gives is in the graph, but not among
its outputs. A message of protobuf that is appended to another is merged into it by whoever parses them, so an output is
added by appending a few bytes, without the package `onnx`. Field numbers are those of onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator

MODEL_GRAPH = 7
GRAPH_NODE, GRAPH_OUTPUT = 1, 12
NODE_OUTPUT, NODE_OP = 2, 4
VALUE_NAME = 1
_SHORT = 128  # lengths below this take one byte


def with_lengths(model: bytes) -> bytes | None:
    """`model` with one more output: frames for each phoneme id, float (1, 1, n). None if it is no such model."""
    names = _outputs_of(memoryview(model), b"Ceil")
    if len(names) != 1 or len(names[0]) >= _SHORT - 8:
        return None
    addition = _field(MODEL_GRAPH, _field(GRAPH_OUTPUT, _field(VALUE_NAME, names[0])))
    return model + addition


def _outputs_of(model: memoryview, op: bytes) -> list[bytes]:
    """The outputs of all nodes that do `op`. Raises ValueError or IndexError when the bytes are no model."""
    names: list[bytes] = []
    for graph in _fields(model, MODEL_GRAPH):
        for node in _fields(graph, GRAPH_NODE):
            if any(bytes(kind) == op for kind in _fields(node, NODE_OP)):
                names += map(bytes, _fields(node, NODE_OUTPUT))
    return names


def _fields(message: memoryview, number: int) -> Iterator[memoryview]:
    """The contents of the fields of that number which hold bytes; others are skipped, and none is copied."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        length = 0
        match key & 7:
            case 0:  # a varint
                _, at = _varint(message, at)
            case 1:
                length = 8
            case 2:  # bytes, after their length
                length, at = _varint(message, at)
            case 5:
                length = 4
            case kind:
                raise ValueError(f"a field of the unknown wire type {kind}")
        if key == number << 3 | 2:
            yield message[at : at + length]
        at += length


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content
