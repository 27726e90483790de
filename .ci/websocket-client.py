"""Drives /ws of `wakeful serve http` with Python's websockets: URL, and the server's process, which is told to drain in the end."""

import asyncio
import os
import signal
import sys

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed


async def main(url, server):
    async with connect(url, max_size=None) as socket:
        for message in ["", "hello", "ü" * 100_000, b"", bytes(range(256)) * 4096]:
            await socket.send(message)
            assert await socket.recv() == message
        # In frames, and compressed if the server took it (it does not).
        await socket.send(["one ", "two ", "three"])
        assert await socket.recv() == "one two three"
        await (await socket.ping())
    assert socket.close_code == 1000

    async def one(number):
        async with connect(url) as socket:
            for message in range(100):
                await socket.send(f"{number}: {message}")
                assert await socket.recv() == f"{number}: {message}"

    await asyncio.gather(*(one(number) for number in range(50)))
    async with connect(url) as socket:
        try:
            await socket.send("x" * (5 << 20))
            await socket.recv()
        except ConnectionClosed as closed:
            assert closed.rcvd.code == 1009, closed
        else:
            raise AssertionError("it took a message that is too large")
    print("websockets: messages, frames, pings, 50 sockets at once, one too large")

    async with connect(url) as socket:
        await socket.send("still here")
        await socket.recv()
        os.kill(server, signal.SIGTERM)
        try:
            await socket.recv()
        except ConnectionClosed as closed:
            assert (closed.rcvd.code, closed.rcvd.reason) == (1001, "the server is draining"), closed
        else:
            raise AssertionError("it was not told of the drain")
    print("websockets: an open socket is told of the drain")


asyncio.run(asyncio.wait_for(main(sys.argv[1], int(sys.argv[2])), 60))
