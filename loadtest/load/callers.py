"""Is the process that holds the calls of a load test: orders come in over a socket, records go out.

Started by the switchboard as `python -m loadtest.load.callers FD`. It ends when the other end of the socket does.
"""

from __future__ import annotations

import asyncio
import socket
import sys

from loadtest.load.conversation import UTTERANCES, call
from loadtest.load.records import Call, HangUp, Record, line, orders
from loadtest.speech import speech


async def serve(ours: socket.socket) -> None:
    """Carry out what is ordered, each call in a task of its own; when no more can come, hang up everywhere."""
    reader, writer = await asyncio.open_connection(sock=ours)

    async def tell(record: Record) -> None:
        writer.write(line(record))
        await writer.drain()

    async with asyncio.TaskGroup() as group:
        calls: dict[int, asyncio.Task[None]] = {}
        async for order in reader:
            match orders.decode(order):
                case Call(user) as ordered:
                    calls[user] = group.create_task(call(ordered, tell))  # in the place of the user's last one
                    await asyncio.sleep(0)  # a task that is cancelled before it has begun would tell nothing
                case HangUp(user):
                    calls[user].cancel()
        for task in calls.values():
            task.cancel()
    writer.close()
    await writer.wait_closed()


if __name__ == "__main__":
    for utterance in UTTERANCES:
        speech(utterance)  # decoded once, before the first call, so that it delays none
    asyncio.run(serve(socket.socket(fileno=int(sys.argv[1]))))
