# SPDX-License-Identifier: Apache-2.0
"""Workers are killed in the middle of answers while stock clients ask, and the clients notice nothing.

Each worker is behind a link, a proxy for the frames of HTTP/2 (RFC 9113). Where the whole fleet is
there and a worker has delivered the first tokens of a stream, the link holds the next piece back and
kills the worker (SIGKILL). So the gateway has some of the answer and not the rest, however fast the
machine is and however many messages a frame has. Of answers in one piece, which a worker sends at their
end, the end is held back. A successor is started at once; when the gateway knows it, the next answer is cut."""
import collections
import functools
import pathlib
import socket
import sys
import threading

import hpack

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from base import *  # noqa: E402

GENERATE = b"/continuo.v1.InferenceService/Generate"
PREFACE_BYTES, HEAD_BYTES, MESSAGE_HEAD_BYTES = 24, 9, 5
DATA, HEADERS, CONTINUATION = 0, 1, 9
MOST_TRIES = 12
END_STREAM, END_HEADERS, PADDED, PRIORITY = 1, 4, 8, 32


class Frame:
    """One frame of HTTP/2."""

    def __init__(self, head, payload):
        self.bytes, self.payload = head + payload, payload
        self.kind, self.flags = head[3], head[4]
        self.stream = int.from_bytes(head[5:9], "big") & 0x7fffffff

    @classmethod
    def read(cls, source):
        """None at the end."""
        head = source.read(HEAD_BYTES)
        if len(head) < HEAD_BYTES:
            return None
        size = int.from_bytes(head[:3], "big")
        payload = source.read(size)
        return cls(head, payload) if len(payload) == size else None

    def content(self):
        """The payload without padding and priority."""
        content, pad = self.payload, 0
        if self.flags & PADDED:
            pad, content = content[0], content[1:]
        if self.kind == HEADERS and self.flags & PRIORITY:
            content = content[5:]
        return content[:len(content) - pad]

    def part(self, content, is_last=False):
        """A frame of data with this part of the content; the last one ends the stream if this one does."""
        flags = self.flags & END_STREAM if is_last else 0
        return (len(content).to_bytes(3, "big") + bytes([self.kind, flags])
                + self.stream.to_bytes(4, "big") + content)


class Answers:
    """The answers of Generate on one connection, as far as they were forwarded."""

    def __init__(self):
        self._generating = set()
        self._decoder = hpack.Decoder()
        self._decoder.max_allowed_table_size = self._decoder.max_header_list_size = 1 << 24
        self._block = b""
        self._unread = collections.defaultdict(bytes)
        self._num_tokens = collections.Counter()

    def see_call(self, frame):
        """A frame of the gateway."""
        if frame.kind not in (HEADERS, CONTINUATION):
            return
        self._block += frame.content()
        if frame.flags & END_HEADERS:
            headers = dict(self._decoder.decode(self._block, raw=True))
            self._block = b""
            if headers.get(b":path") == GENERATE:
                self._generating.add(frame.stream)

    def pieces(self, frame):
        """The frame as (bytes, tokens of the answer before it, whether the answer's end is in it), a piece
        for each message of an answer that ends in it; both are None for all else."""
        if frame.kind != DATA or not frame.payload or frame.stream not in self._generating:
            yield frame.bytes, None, None
            return
        content, sent = frame.content(), 0
        self._unread[frame.stream] += content
        while True:
            unread = self._unread[frame.stream]
            if len(unread) < MESSAGE_HEAD_BYTES:
                break
            end = MESSAGE_HEAD_BYTES + int.from_bytes(unread[1:MESSAGE_HEAD_BYTES], "big")
            if len(unread) < end:
                break
            response = pb.GenerateResponse.FromString(unread[MESSAGE_HEAD_BYTES:end])
            self._unread[frame.stream] = unread[end:]
            until = len(content) - len(unread) + end
            before = self._num_tokens[frame.stream]
            self._num_tokens[frame.stream] += sum(len(d.token_ids) for d in response.deltas)
            yield frame.part(content[sent:until]), before, response.HasField("summary")
            sent = until
        if sent < len(content) or frame.flags & END_STREAM:
            yield frame.part(content[sent:], is_last=True), self._num_tokens[frame.stream], False


class Link:
    """Forwards a gateway's connections to the worker at `target`; closes them while there is none.
    `is_cut(num_tokens, is_end)` is asked before each piece of an answer, as Answers.pieces tells
    them; where it is true, this piece is dropped and the connection ends."""

    def __init__(self, target, is_cut):
        self.target, self._is_cut = target, is_cut
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                gateway, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(gateway,), daemon=True).start()

    def _serve(self, gateway):
        with gateway:
            if self.target is None:
                return
            host, port = self.target.rsplit(":", 1)
            try:
                worker = socket.create_connection((host, int(port)))
            except OSError:
                return
            with worker:
                answers = Answers()
                threading.Thread(target=self._forward, args=(gateway, worker, answers),
                                 daemon=True).start()
                try:
                    self._back(worker, gateway, answers)
                except OSError:
                    pass  # either end is gone
                for end in (gateway, worker):
                    try:
                        end.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass

    @staticmethod
    def _forward(gateway, worker, answers):
        source = gateway.makefile("rb")
        try:
            worker.sendall(source.read(PREFACE_BYTES))
            while (frame := Frame.read(source)) is not None:
                answers.see_call(frame)
                worker.sendall(frame.bytes)
            worker.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # either end is gone

    def _back(self, worker, gateway, answers):
        source = worker.makefile("rb")
        while (frame := Frame.read(source)) is not None:
            for piece, num_tokens, is_end in answers.pieces(frame):
                if num_tokens is not None and self._is_cut(num_tokens, is_end):
                    return
                gateway.sendall(piece)


def until_cut(test):
    """The test, again until it was cut where it has to be: a worker that is late sends an answer's tokens at once, and
    sometimes its end with them, and there is no place in the middle of them."""
    @functools.wraps(test)
    def repeated(self):
        for _ in range(MOST_TRIES):
            test(self)
            self.wait_until_whole()
            if self.is_cut_enough():
                return
            type(self).is_armed = True
    return repeated


class Kills:
    """A mixin for tests of clients: during each test at least one worker is killed under an answer, and
    under a stream where the client asks for any. In tests without streams one answer loses its end."""

    WITHOUT_STREAMS = ()
    MODELS = {MODEL: 2, LONG_MODEL: 2}

    def __init_subclass__(cls):
        for name in dir(cls):
            test = getattr(cls, name)
            if name.startswith("test_") and callable(test):
                setattr(cls, name, until_cut(test))

    @classmethod
    def addresses(cls):
        cls.lock = threading.Lock()
        cls.is_armed, cls.takes_whole, cls.num_cut, cls.num_cut_streams = False, False, 0, 0
        cls.successor, cls.failure = None, None
        cls.links = [Link(worker.address, lambda *piece, i=i: cls.cut(i, *piece))
                     for i, worker in enumerate(cls.workers)]
        return [link.address for link in cls.links]

    @classmethod
    def cut(cls, i, num_tokens, is_end):
        """Kills worker `i` if the client has the tokens that this cut waits for and lacks at least the answer's end, or
        the answer ends."""
        with cls.lock:
            in_stream = num_tokens > cls.num_cut % 3
            if not cls.is_armed or cls.successor is not None:
                return False
            if not in_stream and not (is_end and cls.takes_whole):
                return False
            cls.num_cut += 1
            cls.num_cut_streams += in_stream
            cls.takes_whole = False  # the same answer has its end again
            cls.links[i].target = None
            cls.workers[i].kill()
            cls.successor = threading.Thread(target=cls.replace, args=(i,), daemon=True)
            cls.successor.start()
            return True

    @classmethod
    def replace(cls, i):
        try:
            cls.workers[i] = cls.start_worker(cls.folders[i]).wait_until_listening()
            cls.links[i].target = cls.workers[i].address
            fleet.wait_until(lambda: cls.models_of_grpc() == cls.MODELS, "a whole fleet")
        except Exception as error:
            cls.failure = error
            raise
        with cls.lock:
            cls.successor = None

    @classmethod
    def wait_until_whole(cls):
        """Disarms, and waits for the successor of the last worker that was killed."""
        with cls.lock:
            cls.is_armed, successor = False, cls.successor
        if successor is not None:
            successor.join()
        if cls.failure is not None:
            raise cls.failure

    @classmethod
    def tearDownClass(cls):
        cls.wait_until_whole()
        super().tearDownClass()
        for link in cls.links:
            link.close()

    def wait_until_idle(self):
        self.wait_until_whole()
        super().wait_until_idle()
        type(self).is_armed = True

    def is_cut_enough(self):
        has_streams = self._testMethodName not in self.WITHOUT_STREAMS
        return self.num_cut > 0 and (self.num_cut_streams > 0 or not has_streams)

    def num_migrated(self):
        return sum(value for series, value in fleet.scrape(self.gateway.metrics_address).items()
                   if series.startswith("continuo_gateway_migrations_total{"))

    def setUp(self):
        self.wait_until_whole()
        cls = type(self)
        cls.num_cut = cls.num_cut_streams = 0
        cls.takes_whole = self._testMethodName in self.WITHOUT_STREAMS
        self.num_migrated_before = self.num_migrated()
        cls.is_armed = True

    def tearDown(self):
        self.wait_until_whole()
        migrated = self.num_migrated() - self.num_migrated_before
        print(f"{self.id()}: {self.num_cut} workers killed, {self.num_cut_streams} of them in the middle of "
              f"a stream; {migrated:.0f} answers went on elsewhere", file=sys.stderr, flush=True)
        self.assertTrue(self.is_cut_enough())
        self.assertGreater(migrated, 0)
