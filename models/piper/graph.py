"""Takes a voice's model apart: what finds the words' lengths and their sound's latent, and what decodes that to sound.

A VITS model first makes a latent, a column for each frame of sound, and with it knows how many frames each phoneme
lasts: it rounds the lengths that it predicts with its only `Ceil`. A decoder of convolutions then turns each column,
and a few beside it, into samples; it takes most of the time. Apart, they let the first words be heard while the others
are still decoded. This reads and writes the messages of protobuf themselves, without the package `onnx`, whose own
runtime then checks what was made. Field numbers are those of onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MODEL_GRAPH = 7
GRAPH_NODE, GRAPH_NAME, GRAPH_INITIALIZER, GRAPH_INPUT, GRAPH_OUTPUT, GRAPH_VALUE_INFO = 1, 2, 5, 11, 12, 13
NODE_INPUT, NODE_OUTPUT, NODE_NAME, NODE_OP = 1, 2, 3, 4
TENSOR_NAME, VALUE_NAME, VALUE_TYPE = 8, 1, 2
DECODER = b"/dec/"
"""How Piper's export names the nodes of its decoder."""
SHAPING = (b"Identity", b"Reshape", b"Squeeze", b"Unsqueeze")
"""What may follow the decoder: it changes no sample."""
_FLOATS_OF_RANK_3 = bytes([0x0A, 0x0A, 0x08, 0x01, 0x12, 0x06, 0x0A, 0x00, 0x0A, 0x00, 0x0A, 0x00])
"""A TypeProto: a tensor of floats with three dimensions of any size."""
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class Parts:
    """A model in two: `front` gives the latents that `decoder` takes, then the frames of each phoneme id.

    The lengths are float (1, 1, n), a latent is float (1, channels, frames), or of one column that is for all frames.
    `decoder` has the latents' names as its inputs, and sound as its only output. Where no decoder was found it is
    None, and `front` gives the sound itself.
    """

    front: bytes
    decoder: bytes | None = None
    latents: tuple[str, ...] = ()


def take_apart(model: bytes) -> Parts | None:
    """The parts of a voice's model; None if it doesn't tell lengths.

    Raises ValueError or IndexError when the bytes are no model.
    """
    graph = _graph(model)
    lengths = [name for node in graph.nodes if node.op == b"Ceil" for name in node.outputs]
    if len(lengths) != 1:
        return None
    decoding = [node for node in graph.nodes if node.name.startswith(DECODER)]
    made = {name for node in decoding for name in node.outputs}
    others = [node for node in graph.nodes if not node.name.startswith(DECODER)]
    behind = [node for node in others if not made.isdisjoint(node.inputs)]
    weights = {_name(one, TENSOR_NAME) for one in graph.initializers}
    taken = dict.fromkeys(name for node in decoding for name in node.inputs)
    latents = [name for name in taken if name and name not in made and name not in weights]
    ends = made & {name for node in behind for name in node.inputs}
    if not latents or len(ends) != 1 or any(node.op not in SHAPING for node in behind):
        # What is appended to a message of protobuf is merged into it.
        return Parts(model + _field(MODEL_GRAPH, _named_output(lengths[0])))
    before = [node for node in others if made.isdisjoint(node.inputs)]
    elsewhere = {name for node in before for name in node.inputs}
    front = [graph.rest, *(_field(GRAPH_NODE, node.whole) for node in before)]
    decoder = [_field(GRAPH_NAME, b"decoder"), *(_field(GRAPH_NODE, node.whole) for node in decoding)]
    for one in graph.initializers:
        name = _name(one, TENSOR_NAME)
        if name in taken:
            decoder.append(_field(GRAPH_INITIALIZER, one))
        if name in elsewhere or name not in taken:
            front.append(_field(GRAPH_INITIALIZER, one))
    front += map(_named_output, (*latents, *lengths))
    decoder += (_field(GRAPH_INPUT, _latent(name)) for name in latents)
    decoder += map(_named_output, ends)
    first, second = (graph.around + _field(MODEL_GRAPH, b"".join(part)) for part in (front, decoder))
    return Parts(first, second, tuple(name.decode() for name in latents))


# ---- reading ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of the graph, and its bytes."""

    whole: memoryview
    name: bytes
    op: bytes
    inputs: tuple[bytes, ...]
    outputs: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _Graph:
    """A model: `around` is what stands beside its graph, `rest` what of the graph is none of the lists.

    What is known of the values between the nodes is left out: a runtime finds it again.
    """

    nodes: tuple[_Node, ...]
    initializers: tuple[memoryview, ...]
    rest: bytes
    around: bytes


def _graph(model: bytes) -> _Graph:
    graphs = []
    around = []
    for number, content, whole in _fields(memoryview(model)):
        if number == MODEL_GRAPH:
            graphs.append(content)
        else:
            around.append(whole)
    lists: dict[int, list[memoryview]] = {GRAPH_NODE: [], GRAPH_INITIALIZER: [], GRAPH_OUTPUT: [], GRAPH_VALUE_INFO: []}
    rest = []
    for graph in graphs:
        for number, content, whole in _fields(graph):
            if number in lists:
                lists[number].append(content)
            else:
                rest.append(whole)
    return _Graph(
        tuple(map(_node, lists[GRAPH_NODE])),
        tuple(lists[GRAPH_INITIALIZER]),
        b"".join(rest),
        b"".join(around),
    )


def _node(message: memoryview) -> _Node:
    found: dict[int, list[bytes]] = {NODE_INPUT: [], NODE_OUTPUT: [], NODE_NAME: [], NODE_OP: []}
    for number, content, _ in _fields(message):
        if number in found:
            found[number].append(bytes(content))
    names, ops = found[NODE_NAME], found[NODE_OP]
    return _Node(
        message,
        names[-1] if names else b"",
        ops[-1] if ops else b"",
        tuple(found[NODE_INPUT]),
        tuple(found[NODE_OUTPUT]),
    )


def _name(message: memoryview, number: int) -> bytes:
    return next((bytes(content) for found, content, _ in _fields(message) if found == number), b"")


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Of each field its number, its content, and the whole of it as it is written. Nothing is copied."""
    at = 0
    while at < len(message):
        start = at
        key, at = _varint(message, at)
        begin = at
        match key & 7:
            case kind if kind == _VARINT:
                _, at = _varint(message, at)
            case kind if kind == _FIXED_64:
                at += 8
            case kind if kind == _BYTES:
                length, begin = _varint(message, at)
                at = begin + length
            case kind if kind == _FIXED_32:
                at += 4
            case kind:
                raise ValueError(f"a field of the unknown wire type {kind}")
        if at > len(message):
            raise ValueError("a field is longer than its message")
        yield key >> 3, message[begin:at], message[start:at]


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


# ---- writing ------------------------------------------------------------------------------------------------------


def _field(number: int, content: bytes | memoryview) -> bytes:
    return _number(number << 3 | _BYTES) + _number(len(content)) + bytes(content)


def _number(value: int) -> bytes:
    """A varint."""
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def _named_output(name: bytes) -> bytes:
    return _field(GRAPH_OUTPUT, _field(VALUE_NAME, name))


def _latent(name: bytes) -> bytes:
    """A ValueInfo of a decoder's input."""
    return _field(VALUE_NAME, name) + _field(VALUE_TYPE, _FLOATS_OF_RANK_3)
