#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client that speaks HTTP/2 without manners: no header, no number of streams and no flood of
bytes ends the gateway, takes its memory, or changes what other clients get."""
import functools
import pathlib
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402
import h2.config  # noqa: E402
import h2.connection  # noqa: E402
import h2.errors  # noqa: E402
import h2.events  # noqa: E402
import h2.exceptions  # noqa: E402
import h2.settings  # noqa: E402
from hyperframe.frame import (  # noqa: E402
    ContinuationFrame, HeadersFrame, PingFrame, RstStreamFrame)

MIB = 1 << 20
WAIT_S = 30


def message(request):
    body = request.SerializeToString()
    return b"\0" + len(body).to_bytes(4, "big") + body


def small_request():
    request = pb.GenerateRequest(text="Mira lives in Oslo.")
    request.stopping.max_tokens = 4
    return request


def long_request():
    request = pb.GenerateRequest(text="Mira lives in Oslo. Tom lives in Rome.")
    request.sampling.seed = 5
    request.stopping.max_tokens = 400
    request.stopping.ignore_eos = True
    return request


class RawClient:
    """One connection on which any bytes may be sent."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=WAIT_S)
        self.h2 = h2.connection.H2Connection(config=h2.config.H2Configuration(
            client_side=True, header_encoding=None, validate_outbound_headers=False,
            normalize_outbound_headers=False, validate_inbound_headers=False))
        # Huffman coding of a long header takes this library minutes.
        self.h2.encoder.encode = functools.partial(self.h2.encoder.encode, huffman=False)
        self.h2.initiate_connection()
        self.events = []
        self.closed = False
        self.flush()
        self.wait_for(lambda e: isinstance(e, h2.events.RemoteSettingsChanged))

    def flush(self):
        try:
            self.socket.sendall(self.h2.data_to_send())
        except OSError:
            self.closed = True

    def send_raw(self, frame):
        try:
            self.socket.sendall(frame.serialize())
        except OSError:
            self.closed = True

    def receive(self, timeout=WAIT_S):
        """More events; False where the connection is closed or nothing comes in time."""
        self.socket.settimeout(timeout)
        try:
            data = self.socket.recv(65536)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return False
        try:
            events = self.h2.receive_data(data)
        except h2.exceptions.StreamClosedError as error:
            # The gateway resets a stream that it has rejected already.
            reset = h2.events.StreamReset()
            reset.stream_id = error.stream_id
            events = [reset]
        for event in events:
            self.events.append(event)
            if isinstance(event, h2.events.ConnectionTerminated):
                self.closed = True
        self.flush()
        return True

    def wait_for(self, is_it):
        """The event, or None where the connection was closed."""
        while True:
            found = next((e for e in self.events if is_it(e)), None)
            if found is not None or self.closed or not self.receive():
                return found

    def settle(self):
        """Waits until the gateway has read everything that was sent, or has closed the connection.
       """
        self.send_raw(PingFrame(0, opaque_data=b"all read"))
        answer = PingFrame(0, opaque_data=b"all read", flags=["ACK"]).serialize()
        data = b""
        self.socket.settimeout(WAIT_S)
        while not self.closed and answer not in data:
            try:
                more = self.socket.recv(65536)
            except ConnectionError:
                more = b""
            self.closed = not more
            data = data[-len(answer):] + more

    def headers(self, extra=(), method="Generate"):
        return [(b":method", b"POST"), (b":scheme", b"http"),
                (b":path", f"/continuo.v1.InferenceService/{method}".encode()),
                (b":authority", b"gateway"), (b"te", b"trailers"),
                (b"content-type", b"application/grpc"), *extra]

    def call(self, extra=(), method="Generate", body=None):
        """The end of one call: "0" (its grpc-status), "reset" or "closed"."""
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, self.headers(extra, method))
        self.h2.send_data(stream, body or message(small_request()), end_stream=True)
        self.flush()
        end = self.wait_for(lambda e: getattr(e, "stream_id", None) == stream and isinstance(
            e, (h2.events.TrailersReceived, h2.events.StreamReset, h2.events.StreamEnded)))
        if end is None:
            return "closed"
        if isinstance(end, h2.events.StreamReset):
            return "reset"
        for event in self.events:
            if getattr(event, "stream_id", None) == stream and hasattr(event, "headers"):
                for key, value in event.headers:
                    if key == b"grpc-status":
                        return value.decode()
        return "none"

    def close(self):
        self.socket.close()


# Memory is measured, and AddressSanitizer would keep freed memory.
ENVIRONMENT = {"ASAN_OPTIONS": "quarantine_size_mb=1:thread_local_quarantine_size_kb=64"}


class HostileHttp2Test(unittest.TestCase):
    GATEWAY_FLAGS = ("--max_buffer_bytes=64MiB",)

    @classmethod
    def setUpClass(cls):
        cls.worker = fleet.start_worker(fleet.DEMO_MODEL, "--threads=1")
        cls.gateway = fleet.start_gateway([cls.worker], *cls.GATEWAY_FLAGS, env=ENVIRONMENT)
        cls.client = fleet.Client(cls.gateway.address)
        cls.client.wait_for_model()
        cls.undisturbed = cls.client.generate(long_request()).comparable()

    @classmethod
    def tearDownClass(cls):
        assert cls.gateway.terminate() == 0
        cls.worker.terminate()

    def setUp(self):
        """A well-behaved stream is open during each test."""
        begun = threading.Event()
        self.answer = None

        def run():
            self.answer = self.client.generate(long_request(), on_response=lambda _: begun.set())
        self.neighbour = threading.Thread(target=run)
        self.neighbour.start()
        self.assertTrue(begun.wait(WAIT_S))

    def tearDown(self):
        self.neighbour.join(120)
        self.assertIsNone(self.gateway.process.poll(), "the gateway ended")
        self.assertIsNotNone(self.answer, "the neighbour's stream failed")
        self.assertEqual(self.answer.comparable(), self.undisturbed)
        self.assertEqual(self.client.generate(long_request()).comparable(), self.undisturbed)

    def connect(self):
        client = RawClient(self.gateway.address)
        self.addCleanup(client.close)
        return client

    def memory_now(self):
        """The memory in bytes; peak_memory counts from here on."""
        pathlib.Path(f"/proc/{self.gateway.process.pid}/clear_refs").write_text("5")
        return self.peak_memory()

    def peak_memory(self):
        status = pathlib.Path(f"/proc/{self.gateway.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    def test_bytes_that_no_header_may_have_are_dropped_or_refused(self):
        client = self.connect()
        for key in (b"x-session-id", b"traceparent", b"tracestate", b"x-request-id",
                    b"x-tenant-id", b"x-continuo-move", b"authorization", b"x-anything"):
            for value in (b"\x01\x7f", b"\0", b"a\r\nb: c", b"\xff\xfe", b"caf\xc3\xa9", b"\x7f"):
                if client.closed:
                    client = self.connect()
                self.assertIn(client.call([(key, value)]), ("0", "3", "13", "16", "reset", "closed"),
                              (key, value))
        for key in (b"X-Upper", b"a b", b"\x01", b"", b":path", b"grpc-timeout"):
            client = self.connect()
            self.assertIn(client.call([(key, b"\x01")]),
                          ("0", "1", "2", "3", "12", "13", "reset", "closed", "none"), key)
        # gRPC would abort on sending this value: it is dropped, and the request is served.
        self.assertEqual(self.connect().call([(b"x-session-id", b"\x01\x7f")]), "0")

    def test_metadata_beyond_every_limit_is_refused(self):
        before = self.memory_now()
        for extra in ([(b"x-session-id", b"s" * MIB)],
                      [(b"traceparent", b"t" * 5000)],
                      [(b"x-%d" % i, b"v" * 20) for i in range(5000)],
                      [(b"x-session-id", b"%d" % i) for i in range(3000)],
                      [(b"k" * 60000, b"v")]):
            self.assertIn(self.connect().call(extra), ("0", "8", "13", "reset", "closed"))
        self.assertLess(self.peak_memory() - before, 64 * MIB)

    def test_headers_that_never_end_take_no_memory(self):
        before = self.memory_now()
        client = self.connect()
        client.send_raw(HeadersFrame(1, client.h2.encoder.encode(client.headers())))
        for _ in range(2000):
            block = client.h2.encoder.encode([(b"x-junk", b"j" * 8000)])
            client.send_raw(ContinuationFrame(1, block))
            if client.closed:
                break
        self.assertLess(self.peak_memory() - before, 64 * MIB)

    def test_streams_without_number_are_refused(self):
        client = self.connect()
        limit = client.h2.remote_settings.max_concurrent_streams
        self.assertLessEqual(limit, 1024)
        before = self.memory_now()
        block = client.headers()
        for i in range(4 * limit):
            frame = HeadersFrame(2 * i + 1, client.h2.encoder.encode(block), flags=["END_HEADERS"])
            client.send_raw(frame)
            if client.closed:
                break
        client.settle()
        self.assertLess(self.peak_memory() - before, 64 * MIB)

    def test_streams_that_are_reset_at_once_take_little_each(self):
        """gRPC does not bound how many of them wait to be forgotten, only how fast they come."""
        client = self.connect()
        before = self.memory_now()
        block = client.headers()
        num_streams = 10000
        for i in range(num_streams):
            client.send_raw(HeadersFrame(2 * i + 1, client.h2.encoder.encode(block),
                                         flags=["END_HEADERS"]))
            client.send_raw(RstStreamFrame(2 * i + 1, error_code=8))
            if client.closed:
                break
        client.settle()  # else the next test would pay for what is still to be read
        self.assertLess(self.peak_memory() - before, num_streams * 32 * 1024)  # about 20 KiB

    def test_requests_that_never_end_are_bounded_before_anybody_is_known(self):
        """Each of many streams sends nearly all of a request of 8 MiB and then waits."""
        before = self.memory_now()
        sent = 0
        prefix = b"\0" + (8 * MIB).to_bytes(4, "big")
        chunk = b"x" * 16384
        deadline = time.monotonic() + 20
        for _ in range(4):
            client = self.connect()
            streams = {}
            for _ in range(16):
                stream = client.h2.get_next_available_stream_id()
                client.h2.send_headers(stream, client.headers())
                client.h2.send_data(stream, prefix)
                streams[stream] = 7 * MIB
            client.flush()
            idle = 0
            while streams and not client.closed and idle < 3 and time.monotonic() < deadline:
                progress = False
                for stream in list(streams):
                    try:
                        room = min(client.h2.local_flow_control_window(stream), len(chunk))
                        if room > 0:
                            client.h2.send_data(stream, chunk[:room])
                            streams[stream] -= room
                            sent += room
                            progress = True
                            client.flush()
                    except Exception:  # reset by the gateway
                        streams.pop(stream)
                        continue
                    if streams[stream] <= 0:
                        streams.pop(stream)
                received = client.receive(timeout=0 if progress else 0.3)
                idle = 0 if progress or received else idle + 1
        growth = self.peak_memory() - before
        print(f"{sent / MIB:.0f} MiB sent, the gateway's peak grew by {growth / MIB:.0f} MiB",
              flush=True)
        self.assertLess(growth, 2 * 64 * MIB)


if __name__ == "__main__":
    unittest.main(verbosity=2)
