# SPDX-License-Identifier: Apache-2.0
"""TCP proxies on a loopback port: one breaks its connections after a given number of bytes, the other
falls silent."""
import socket
import struct
import threading


class BreakingProxy:
    """Forwards to `target` ("host:port"). The first connection is reset when the first of `limits` bytes
    went from server to client, the next one at the second limit, and so on; connections beyond the list
    are not reset. A limit that a connection did not reach applies to the next one. `num_broken` counts
    the resets."""

    def __init__(self, target, limits=()):
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._limits = list(limits)
        self.num_broken = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            limit = self._limits.pop(0) if self._limits else None
            threading.Thread(target=self._serve, args=(client, limit), daemon=True).start()

    def _serve(self, client, limit):
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        threading.Thread(target=self._forward, args=(client, server, None), daemon=True).start()
        self._forward(server, client, limit)

    def _forward(self, source, sink, limit):
        whole = limit
        try:
            while limit is None or limit > 0:
                data = source.recv(4096 if limit is None else min(limit, 4096))
                if not data:
                    break
                if limit is not None:
                    limit -= len(data)
                sink.sendall(data)
        except OSError:
            pass
        if limit:
            self._limits.insert(0, whole)
        if limit == 0:
            self.num_broken += 1
            for end in (source, sink):  # A reset instead of an orderly end.
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()


class SilentProxy:
    """Forwards to `target` ("host:port"). On the first connection, answers are held back after `num_data`
    DATA frames (RFC 9113). When `num_pings` more pings of the client were answered, nothing passes in
    either direction, not even the end of the connection, as where a node is lost; `is_silent` is then
    true. Later connections work."""

    DATA, PING, ACK = 0, 6, 1

    def __init__(self, target, num_data, num_pings):
        host, port = target.rsplit(":", 1)
        self._target, self._num_data, self._num_pings = (host, int(port)), num_data, num_pings
        self.is_silent = False
        self._ends = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()
        for end in self._ends:
            end.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            back = self._forward if self._ends else self._forward_until_silent
            self._ends += [client, server]
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
            threading.Thread(target=back, args=(server, client), daemon=True).start()

    def _forward(self, source, sink):
        try:
            while data := source.recv(65536):
                if not self._silenced(source):
                    sink.sendall(data)
            if not self._silenced(source):
                sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _silenced(self, end):
        return self.is_silent and end in self._ends[:2]

    def _forward_until_silent(self, server, client):
        frames = server.makefile("rb")
        num_data = num_answers = 0
        while num_answers < self._num_pings:
            header = frames.read(9)
            if len(header) < 9:  # The server has ended the connection, which is no silence.
                try:
                    client.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
                return
            frame = header + frames.read(int.from_bytes(header[:3], "big"))
            kind, flags = header[3], header[4]
            num_data += kind == self.DATA
            is_held = num_data > self._num_data
            num_answers += is_held and kind == self.PING and flags & self.ACK
            is_of_connection = not any(header[5:9])
            if is_of_connection or not is_held:
                client.sendall(frame)
        self.is_silent = True
