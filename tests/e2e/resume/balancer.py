# SPDX-License-Identifier: Apache-2.0
"""A load balancer on a loopback port that loses connections."""
import random
import socket
import struct
import threading


class CuttingBalancer:
    """Leads each connection to one of `targets` ("host:port"), which may be changed, and ends most of them
    after a random number of bytes: mostly of the answer, some in the request, half of them by a reset. Where
    no target takes it, a connection is closed. `num_cut` counts the connections that it has ended."""

    CUT, IN_REQUEST = 0.8, 0.1  # of the connections; of the cuts

    def __init__(self, targets, seed, longest=2500):
        self.targets, self.num_cut, self._longest = list(targets), 0, longest
        self._chance, self._lock = random.Random(seed), threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        # A thread that accepts would keep a socket that is only closed.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _plan(self):
        """Bytes of the request and of the answer until the cut, None for none, and whether it is a reset."""
        with self._lock:
            chance = self._chance
            request = answer = None
            if chance.random() < self.CUT:
                if chance.random() < self.IN_REQUEST:
                    request = chance.randrange(1, 700)
                else:
                    answer = chance.randrange(1, self._longest)
            return request, answer, chance.random() < 0.5, chance.sample(self.targets, len(self.targets))

    def _serve(self, client):
        request, answer, is_reset, targets = self._plan()
        with client:
            for target in targets:
                host, port = target.rsplit(":", 1)
                try:
                    server = socket.create_connection((host, int(port)))
                except OSError:
                    continue
                with server:
                    ends = (client, server)
                    back = threading.Thread(target=self._forward, args=(*ends, request, is_reset), daemon=True)
                    back.start()
                    self._forward(server, client, answer, is_reset)
                    back.join()
                return

    def _forward(self, source, sink, limit, is_reset):
        """Ends both at the end of either or after `limit` bytes."""
        try:
            while limit != 0:
                data = source.recv(4096 if limit is None else min(limit, 4096))
                if not data:
                    break
                limit = None if limit is None else limit - len(data)
                sink.sendall(data)
        except OSError:
            pass
        if limit == 0:
            with self._lock:
                self.num_cut += 1
        for end in (source, sink):
            try:
                if limit == 0 and is_reset:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is gone
