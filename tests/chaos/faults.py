# SPDX-License-Identifier: Apache-2.0
"""Draws faults, does them, and mends what they broke. At any time one gateway and one worker are
whole, and no stream loses a third worker in a row without a token in between (it would be taken for
the cause, exactness: query-of-death)."""
import collections
import time

# The relative frequency of each fault.
WEIGHTS = {"worker killed": 6, "worker stopped": 3, "engine blocked": 3, "worker terminated": 2,
           "link cut": 3, "gateway killed": 2, "gateway terminated": 1, "gateway stopped": 1}
PROGRESS_TIMEOUT_S = 60
PATIENCE_S = 3  # for a moment at which a gateway's end cuts a stream
MAX_WORKERS_DOWN = 2


class Faults:
    """Worker 0 and gateway 0 never end, so that what they hold can be compared over the whole
    run; they are stopped, blocked and cut off like the others. One thread calls all of it."""

    def __init__(self, clients, gateways, workers, rng):
        self.clients, self.gateways, self.workers, self.rng = clients, gateways, workers, rng
        self.counts = collections.Counter()
        self.history = []  # (when, what)
        self._repairs = []  # (when, node, method)

    def inject(self):
        """Causes one fault, as soon as one may happen."""
        kind = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        begin = time.monotonic()
        while True:
            self._repair_what_is_due()
            for node in self.gateways + self.workers:
                if not node.down:
                    node.check_alive()
            waited = time.monotonic() - begin
            node = self._victim(kind, waited)
            if node is not None:
                break
            if waited > PROGRESS_TIMEOUT_S:
                raise TimeoutError(f"a stream has made no progress for {PROGRESS_TIMEOUT_S} s")
            self.clients.wait_for_tokens(1, timeout=0.05)
        self.counts[kind] += 1
        self.history.append((time.monotonic(), f"{node.name}: {kind}"))
        if node in self.workers:
            self.clients.count_loss()
        self._do(kind, node)

    def repair(self):
        """Everything is whole again on return."""
        while self._repairs:
            self._repair_what_is_due()
            self.clients.wait_for_tokens(1, timeout=0.05)

    def go_on(self):
        """Lets the streams run for a while: some tokens, or some time where none come."""
        tokens = self.rng.randrange(1, 3000)
        until = time.monotonic() + self.rng.uniform(0.05, 0.7)
        self.clients.wait_for_tokens(tokens, timeout=max(0.0, until - time.monotonic()))

    def _victim(self, kind, waited):
        """The node to hit; None where the fault may not happen now, or would hit nothing."""
        if kind.startswith("gateway"):
            up = [g for g in self.gateways if not g.down]
            nodes = up if len(up) > 1 else []
            if kind != "gateway stopped":
                nodes = [g for g in nodes if g is not self.gateways[0]]
            if waited < PATIENCE_S:
                nodes = [g for g in nodes if self.clients.is_midway(g)]
        else:
            up = [w for w in self.workers if not w.down]
            nodes = up if len(self.workers) - len(up) < MAX_WORKERS_DOWN else []
            if kind in ("worker killed", "worker terminated"):
                nodes = [w for w in nodes if w is not self.workers[0]]
            if self.clients.most_losses() >= 2:
                nodes = []
        return self.rng.choice(nodes) if nodes else None

    def _do(self, kind, node):
        seconds = self.rng.choice([self.rng.uniform(0.05, 1), self.rng.uniform(2, 5)])
        if kind.endswith("killed"):
            node.kill()
            self._after(self.rng.choice([0.0, self.rng.uniform(0, 1)]), node, node.start)
        elif kind.endswith("terminated"):
            node.begin_end()
            self._after(0.0, node, node.restart)
        elif kind.endswith("stopped"):
            node.stop()
            self._after(seconds, node, node.go_on)
        elif kind == "engine blocked":
            node.block_engine()
            self._after(seconds, node, node.unblock_engine)
        elif kind == "link cut":
            node.cut()
            self._after(seconds, node, node.join)

    def _after(self, seconds, node, mend):
        self._repairs.append((time.monotonic() + seconds, node, mend))

    def _is_due(self, when, node, mend):
        now = time.monotonic()
        if mend == node.restart and not node.has_ended() and now < when + PROGRESS_TIMEOUT_S:
            return False
        return now >= when

    def _repair_what_is_due(self):
        due = [repair for repair in self._repairs if self._is_due(*repair)]
        for repair in due:
            self._repairs.remove(repair)
            _, node, mend = repair
            mend()
            self.history.append((time.monotonic(), f"{node.name}: {mend.__name__}"))
