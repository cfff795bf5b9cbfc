"""Drives the shared-memory relay of `sglang-omni` as that package's stages do, and takes the times.

It runs in an environment of its own, where nothing of ours is: `python relay_peer.py` reads orders as lines of JSON and
answers each with one. The receiver is a second process of the same file.

As in `CommEngine` and `Stage` there: the tensor goes into the relay as bytes; a `DataReadyMessage` with the relay's
metadata goes over the package's own control plane; the receiver lets the relay fill a tensor of zeroes, and sends a
`DataAckMessage`, upon which the sender completes its operation. Eight payloads are in flight, as over our own plane.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import sys
import tempfile
import time

import torch

logging.disable(logging.ERROR)  # the package tells of each transport that is not installed
from sglang_omni.pipeline.control_plane import PullSocket, PushSocket  # noqa: E402
from sglang_omni.proto import DataAckMessage, DataReadyMessage  # noqa: E402
from sglang_omni.relay.base import Relay, RelayOperation, create_relay  # noqa: E402

IN_FLIGHT = 8
PAGE_WORDS = 512


class Sender:
    """A stage that sends tensors, and completes them when they are acknowledged."""

    def __init__(self, relay: Relay, push: PushSocket, pull: PullSocket) -> None:
        self._relay = relay
        self._push = push
        self._pull = pull
        self._pending: dict[str, tuple[RelayOperation, asyncio.Future[int]]] = {}

    async def send(self, tensor: torch.Tensor, number: int) -> asyncio.Future[int]:
        """Send a tensor; the future is done when it was received, with the time at which it was opened."""
        began_ns = time.monotonic_ns()
        name = f"request:{number}"
        tensor[0] = number
        operation = await self._relay.put_async(tensor.contiguous().view(torch.uint8).reshape(-1), request_id=name)
        opened: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pending[name] = (operation, opened)
        metadata = {"info": operation.metadata, "shape": list(tensor.shape), "began_ns": began_ns}
        await self._push.send(DataReadyMessage(name, "sender", "receiver", metadata, chunk_id=number))
        return opened

    async def acknowledge(self) -> None:
        """Take in acknowledgements for ever."""
        while True:
            ack = await self._pull.recv()
            operation, opened = self._pending.pop(ack.request_id)
            operation.mark_receiver_done()
            await operation.wait_for_completion()
            opened.set_result(int(ack.object_id))


async def measure(sender: Sender, nbytes: int, count: int, singles: int) -> dict[str, object]:
    """Bytes a second with eight in flight, and the microseconds that each of `singles` payloads took alone."""
    tensor = torch.ones(nbytes // 8, dtype=torch.int64)
    alone_us = []
    for number in range(singles):
        began_ns = time.monotonic_ns()
        alone_us.append((await (await sender.send(tensor, number)) - began_ns) / 1000)
    began_ns = time.monotonic_ns()
    futures = [await sender.send(tensor, number) for number in range(count)]
    await asyncio.gather(*futures)
    return {"bytes_per_s": nbytes * count / (time.monotonic_ns() - began_ns) * 1e9, "alone_us": alone_us}


async def receive(folder: str) -> None:
    """The other stage: read each tensor, and acknowledge it. The time goes back as the name of the object."""
    relay = create_relay("shm", engine_id="receiver", device="cpu", credits=IN_FLIGHT)
    pull, push = PullSocket(f"ipc://{folder}/data"), PushSocket(f"ipc://{folder}/acks")
    await pull.start()
    await push.connect()
    while True:
        message = await pull.recv()
        info = message.data_ref["info"]
        buffer = torch.zeros(info["transfer_info"]["size"], dtype=torch.uint8)
        operation = await relay.get_async(metadata=info, dest_tensor=buffer, request_id=message.request_id)
        await operation.wait_for_completion()
        tensor = buffer.view(torch.int64).reshape(message.data_ref["shape"])
        opened_ns = time.monotonic_ns()
        page = tensor[:PAGE_WORDS].numpy()
        assert int(page[0]) == message.chunk_id, "another tensor came"
        assert int(page.sum()) == message.chunk_id + len(page) - 1, "another tensor came"
        await push.send(DataAckMessage(message.request_id, "receiver", "sender", str(opened_ns)))


async def serve(folder: str) -> None:
    """Carry out orders from standard input until it ends: `nbytes`, `count` and `singles`."""
    relay = create_relay("shm", engine_id="sender", device="cpu", credits=IN_FLIGHT)
    push, pull = PushSocket(f"ipc://{folder}/data"), PullSocket(f"ipc://{folder}/acks")
    await pull.start()
    await push.connect()
    sender = Sender(relay, push, pull)
    acknowledging = asyncio.create_task(sender.acknowledge())
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await measure(sender, **json.loads(line))), flush=True)
    acknowledging.cancel()


def run_receiver(folder: str) -> None:
    asyncio.run(receive(folder))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        # Spawned as that package spawns its stages, so that both share one tracker of shared memory.
        receiver = multiprocessing.get_context("spawn").Process(target=run_receiver, args=(folder,), daemon=True)
        receiver.start()
        try:
            asyncio.run(serve(folder))
        finally:
            receiver.kill()
            receiver.join()


if __name__ == "__main__":
    main()
