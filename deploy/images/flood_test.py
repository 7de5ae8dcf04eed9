#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Floods of HTTP/2 frames against the gateway as the images carry it and as strangers should meet
it (100 calls a connection): its memory stays bounded, and a well-behaved stream beside each flood,
and one after it, are served byte for byte.

$CONTINUO_BIN names the programs; deploy/images/test.sh sets it to those of the images. The bounds
are those of a gRPC with the limits of 2023; older ones let some of these floods take more.
"""
import pathlib
import select
import sys
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import hostile_http2_test as hostile  # noqa: E402
from hyperframe.frame import (ContinuationFrame, DataFrame, HeadersFrame, PingFrame,  # noqa: E402
                              RstStreamFrame, SettingsFrame)

MIB = hostile.MIB
MOST_SECONDS = 20
NUM_CONNECTIONS = 8


def discard(client, timeout=0.0):
    """Reads what has come and answers nothing."""
    ready, _, _ = select.select([client.socket], [], [], timeout)
    if ready and not client.socket.recv(65536):
        client.closed = True


class Flood:
    """Sends frames over several connections until each is closed or had its number of them."""

    def __init__(self, test, frames, num_frames, reads):
        self.test, self.frames, self.num_frames, self.reads = test, frames, num_frames, reads
        self.sent = self.closed = 0
        self.lock = threading.Lock()

    def run(self):
        threads = [threading.Thread(target=self._one) for _ in range(NUM_CONNECTIONS)]
        begin = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.seconds = time.monotonic() - begin
        return self

    def _one(self):
        client = self.test.connect()
        client.socket.settimeout(2)  # a server that no longer reads has ended the flood, too
        deadline = time.monotonic() + MOST_SECONDS
        sent = 0
        try:
            for data in self.frames(client):
                client.socket.sendall(data)
                sent += 1
                if self.reads and sent % 64 == 0:
                    discard(client)
                if client.closed or sent >= self.num_frames or time.monotonic() > deadline:
                    break
        except OSError:
            client.closed = True
        with self.lock:
            self.sent += sent
            self.closed += client.closed
        client.close()  # what comes after the flood is after it


class FloodTest(hostile.HostileHttp2Test):
    """Adds to the tests of hostile_http2_test, which this build has to pass as well."""
    GATEWAY_FLAGS = ("--max_buffer_bytes=256MiB", "--max_streams_per_connection=100")

    def flood(self, name, frames, num_frames, reads=True, bound=64 * MIB):
        before = self.memory_now()
        flood = Flood(self, frames, num_frames, reads).run()
        growth = self.peak_memory() - before
        print(f"{name}: {flood.sent} batches in {flood.seconds:.1f} s, {flood.closed} of "
              f"{NUM_CONNECTIONS} connections ended by the gateway, its peak grew by "
              f"{growth / MIB:.1f} MiB", flush=True)
        self.assertLess(growth, bound)

    def test_streams_that_are_reset_at_once_take_no_memory(self):
        def frames(client):
            block = client.h2.encoder.encode(client.headers())
            for stream in range(1, 1 << 20, 2):
                yield (HeadersFrame(stream, block, flags=["END_HEADERS"]).serialize() +
                       RstStreamFrame(stream, error_code=8).serialize())
        self.flood("rapid reset", frames, 50_000)

    def test_requests_that_are_reset_once_complete_take_no_memory(self):
        def frames(client):
            block = client.h2.encoder.encode(client.headers())
            body = hostile.message(hostile.long_request())
            for stream in range(1, 1 << 20, 2):
                yield (HeadersFrame(stream, block, flags=["END_HEADERS"]).serialize() +
                       DataFrame(stream, body, flags=["END_STREAM"]).serialize() +
                       RstStreamFrame(stream, error_code=8).serialize())
        self.flood("rapid reset of whole requests", frames, 20_000)

    def test_pings_without_end_take_no_memory(self):
        def frames(_):
            batch = b"".join(PingFrame(0, opaque_data=b"%08d" % i).serialize() for i in range(100))
            while True:
                yield batch
        self.flood("pings", frames, 10_000)
        self.flood("pings, answers unread", frames, 10_000, reads=False)

    def test_settings_without_end_take_no_memory(self):
        def frames(_):
            batch = SettingsFrame(0, settings={4: 65535}).serialize() * 100
            while True:
                yield batch
        self.flood("settings, answers unread", frames, 10_000, reads=False)

    def test_header_blocks_that_never_end_are_bounded_by_the_buffers(self):
        """gRPC keeps them until their stream ends."""
        def frames(client):
            block = client.h2.encoder.encode(client.headers())
            yield HeadersFrame(1, block).serialize()
            junk = client.h2.encoder.encode([(b"x-junk", b"j" * 8000)])
            while True:
                yield ContinuationFrame(1, junk).serialize()
        self.flood("continuations", frames, 20_000, bound=256 * MIB)

    def test_empty_continuations_take_no_memory(self):
        def frames(client):
            yield HeadersFrame(1, client.h2.encoder.encode(client.headers())).serialize()
            while True:
                yield ContinuationFrame(1, b"").serialize() * 100
        self.flood("empty continuations", frames, 10_000)

    def test_empty_data_frames_take_no_memory(self):
        def frames(client):
            block = client.h2.encoder.encode(client.headers())
            yield HeadersFrame(1, block, flags=["END_HEADERS"]).serialize()
            while True:
                yield DataFrame(1, b"").serialize() * 100
        self.flood("empty data", frames, 10_000)

    def test_readers_that_take_nothing_are_bounded(self):
        """Whole requests for long answers, and no window to send them in."""
        def frames(client):
            yield SettingsFrame(0, settings={4: 0}).serialize()
            block = client.h2.encoder.encode(client.headers())
            body = hostile.message(hostile.long_request())
            for stream in range(1, 2 * 64, 2):
                yield (HeadersFrame(stream, block, flags=["END_HEADERS"]).serialize() +
                       DataFrame(stream, body, flags=["END_STREAM"]).serialize())
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline and not client.closed:
                discard(client, timeout=0.5)
                yield b""
        self.flood("readers that take nothing", frames, 1 << 30, bound=128 * MIB)


if __name__ == "__main__":
    del hostile.HostileHttp2Test  # its tests run as FloodTest's
    unittest.main(verbosity=2)
