#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two real workers, one really filled to 90 % of its KV cache without a queue: by what WatchLoad
reports, it receives fewer requests than the one at 10 %."""
import collections
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402
import filled_cache  # noqa: E402
from filled_cache import CONTEXT  # noqa: E402
from fleet import pb, worker_pb  # noqa: E402


class RoutingTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.workers = filled_cache.start_workers(self.folder.name, 2)
        self.gateway = fleet.start_gateway(self.workers)
        self.client = fleet.Client(self.gateway.address)
        self.client.wait_for_model(2)

    def tearDown(self):
        for program in [self.gateway, *self.workers]:
            program.kill()
        self.folder.cleanup()

    def load_without_queue(self, worker):
        """The worker's report while no request waits; a report may be from just before the last
        request was admitted, so the first that shows no queue counts. A lasting queue fails."""
        call = fleet.Client(worker.address).worker.WatchLoad(worker_pb.WatchLoadRequest(),
                                                             timeout=30)
        load = next(load for load in call if load.waiting_requests == 0)
        call.cancel()
        return load

    def worker_of_answer(self, client, i):
        """The name of the worker that answers a short request."""
        request = pb.GenerateRequest()
        request.token_ids.ids.extend([10 + i % 200, 30, 40])
        request.stopping.max_tokens = 1
        return client.generate(request).accepted[-1].worker

    def test_fuller_worker_receives_fewer(self):
        full, light = self.workers
        names = [self.worker_of_answer(fleet.Client(worker.address), 0) for worker in self.workers]
        held = [filled_cache.Held(full, CONTEXT * 9 // 10), filled_cache.Held(light, CONTEXT // 10)]
        num_requests, answered_by = 400, collections.Counter()
        for i in range(num_requests):
            if i % 10 == 0:
                loads = [self.load_without_queue(w) for w in self.workers]
                self.assertGreaterEqual(loads[0].used_kv_blocks, 0.88 * loads[0].total_kv_blocks)
                self.assertLess(loads[1].used_kv_blocks, 0.3 * loads[1].total_kv_blocks)
            answered_by[self.worker_of_answer(self.client, i)] += 1
        for holder in held:
            holder.release()
        received = [answered_by[name] for name in names]
        self.assertEqual(sum(received), num_requests)
        print(f"{num_requests} requests: {received[0]} at 90 %, {received[1]} at 10 %")
        self.assertLess(received[0] * 2, received[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
