"""Carries TCP connections from a port of this machine's loopback into a network namespace.

    python relay.py PID HERE:PORT THERE:PORT

A socket belongs to the namespace in which it was made: the listening one is made first, then the
process moves into the namespace of PID, and its connections start there. So tests reach a cluster
whose networks this machine does not know. Standard library only, run by its path.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys

CLONE_NEWNET = 0x40000000  # sched.h
CHUNK_BYTES = 1 << 16


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction until its end, then close the other side's half."""
    try:
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:  # one side was cut, which the other is to see
        writer.transport.abort()


async def serve(listening: socket.socket, target: tuple[str, int]) -> None:
    """Accept until killed."""

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection(*target)
        except OSError:  # nobody listens there: let the caller see a closed connection
            writer.transport.abort()
            return
        await asyncio.gather(carry(reader, there_writer), carry(there_reader, writer))
        there_writer.close()
        writer.close()

    server = await asyncio.start_server(accepted, sock=listening)
    await server.serve_forever()


def enter_network(pid: int) -> None:
    """Move this process into the network namespace of another. Raises: OSError."""
    file = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(file, CLONE_NEWNET) != 0:  # os.setns needs 3.12
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")
    os.close(file)


def main(pid: str, here: str, there: str) -> None:
    """Listen here, go there, carry."""
    address, _, port = here.rpartition(":")
    listening = socket.create_server((address, int(port)), backlog=128)
    enter_network(int(pid))
    target, _, target_port = there.rpartition(":")
    asyncio.run(serve(listening, (target, int(target_port))))


if __name__ == "__main__":
    main(*sys.argv[1:])
