"""Opens what chunks and jobs refer to for the length of a step, and gives back what no step will see."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from pipeline.chunk import AudioPart, Chunk, Job, Tensors, Think, Transcribe
from transport.base import Inline, Lease, Receiver, Ref, Sender, inline
from transport.errors import PlaneError, StaleRef

log = logging.getLogger(__name__)

INLINE_BYTES = 16 << 10
"""Up to this size arrays ride inside the message: a copy through the control plane is then cheaper than a slot."""


@dataclass(frozen=True, slots=True)
class Planes:
    """The data planes that end at a stage and those that begin there, by name."""

    receivers: Mapping[str, Receiver] = field(default_factory=dict)
    senders: Mapping[str, Sender] = field(default_factory=dict)


NO_PLANES: Final = Planes()


class Leases:
    """The slots that one step reads. The stage sees arrays; they are valid until the step is over."""

    def __init__(self, receivers: Mapping[str, Receiver]) -> None:
        self._receivers = receivers
        self._held: list[Lease] = []

    def open(self, chunk: Chunk) -> Chunk:
        """The chunk with its arrays at hand. Raises `PlaneError`."""
        if isinstance(chunk.payload, Tensors) and isinstance(chunk.payload.blocks, Ref):
            blocks = self._take(chunk.payload.blocks)
            return msgspec.structs.replace(chunk, payload=Tensors(chunk.payload.port, blocks))
        return chunk

    def open_job(self, job: Job) -> Job:
        """The job with its sound at hand: a copy, for it outlives the step. Raises `PlaneError`."""
        if not isinstance(job, Transcribe) or not isinstance(job.audio, Ref):
            return job
        with _receiver(self._receivers, job.audio).open(job.audio) as lease:
            sound = inline({name: array.copy() for name, array in lease.arrays.items()})
        return msgspec.structs.replace(job, audio=sound)

    def release(self) -> None:
        """Return every credit; what the stage still needs it has copied."""
        while self._held:
            self._held.pop().release()

    def _take(self, ref: Ref) -> Inline:
        lease = _receiver(self._receivers, ref).open(ref)
        self._held.append(lease)
        return inline(lease.arrays)


def refs_of(value: Chunk | Job) -> tuple[Ref, ...]:
    """The slots that a chunk or a job refers to."""
    match value:
        case Chunk(payload=Tensors(blocks=Ref() as ref)) | Transcribe(audio=Ref() as ref):
            return (ref,)
        case Think(prompt=prompt):
            return tuple(p.audio for p in prompt.parts if isinstance(p, AudioPart) and isinstance(p.audio, Ref))
    return ()


def give_back(planes: Planes, unseen: Chunk | Job) -> None:
    """Return the credits of what nobody will see."""
    for ref in refs_of(unseen):
        try:
            if ref.plane in planes.senders:
                planes.senders[ref.plane].withdraw(ref)
            else:
                _receiver(planes.receivers, ref).open(ref).release()
        except StaleRef:
            pass  # the sender took it back in the meantime, or it was read
        except PlaneError:  # one credit less, where the way out would be to end the stage
            log.exception("%s can't be given back", ref)


def _receiver(receivers: Mapping[str, Receiver], ref: Ref) -> Receiver:
    receiver = receivers.get(ref.plane)
    if receiver is None:
        raise PlaneError(f"the data plane {ref.plane!r} does not end at this stage: send the payload inline")
    return receiver
