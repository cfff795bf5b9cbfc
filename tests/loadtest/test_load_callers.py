"""Tests the process of callers from its socket: every call that is ordered is told to be over."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from websockets.asyncio.server import ServerConnection, serve

from loadtest.load.callers import serve as hold_calls
from loadtest.load.records import Call, Closed, HangUp, Order, Record, line, told


def carried_out(orders: Sequence[Order]) -> list[Record]:
    """What is told when all orders come at once, and no more."""
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(b"".join(line(order) for order in orders))
        ours.shutdown(socket.SHUT_WR)
        asyncio.run(hold_calls(theirs))
        with ours.makefile("rb") as lines:
            return [told.decode(one) for one in lines]


def test_a_call_that_is_hung_up_before_it_has_begun_is_over_all_the_same() -> None:
    (closed,) = carried_out([Call(7, "ws://127.0.0.1:1"), HangUp(7)])
    assert isinstance(closed, Closed)
    assert closed.user == 7


def test_calls_end_when_nobody_can_order_any_more() -> None:
    async def scene() -> list[Record]:
        async def wait(connection: ServerConnection) -> None:
            async for _ in connection:
                pass

        async with serve(wait, "127.0.0.1", 0) as server:
            url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
            return await asyncio.to_thread(carried_out, [Call(1, url), Call(2, url)])

    records = asyncio.run(scene())
    assert {one.user for one in records if isinstance(one, Closed)} == {1, 2}
