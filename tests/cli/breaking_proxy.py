# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy on a loopback port that breaks its connections after a given number of bytes."""
import socket
import struct
import threading


class BreakingProxy:
    """Forwards to `target` ("host:port"). A connection is reset once the first of `limits` bytes
    went from server to client, the next one with the second limit, and so on; connections beyond
    the list live on. A limit that a connection ended without reaching is for the next connection.
    `num_broken` counts the resets."""

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
            for end in (source, sink):  # Reset, not an orderly end.
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()
