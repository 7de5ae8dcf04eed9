# SPDX-License-Identifier: Apache-2.0
"""What the steps of a worker had in them, for tests of requests that are to run beside each other."""
import threading

import grpc
from continuo.v1 import worker_pb2


class StepWatch:
    """Collects the request ids of each step of a worker."""

    def __init__(self, client, run):
        """`run(request_id)` makes the worker run a step for a request of that id."""
        self.steps, self.run, self.num_looks = [], run, 0
        self.changed = threading.Condition()
        self.call = client.worker.WatchSteps(worker_pb2.WatchStepsRequest())
        self.thread = threading.Thread(target=self._read)
        self.thread.start()
        # Steps before the watch are not told.
        while not self._has("first", timeout=1):
            run("first")

    def _read(self):
        try:
            for response in self.call:
                with self.changed:
                    self.steps += [{s.request_id for s in step.sequences} for step in response.steps]
                    self.changed.notify_all()
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE):
                raise

    def _has(self, request_id, timeout):
        with self.changed:
            return self.changed.wait_for(lambda: any(request_id in step for step in self.steps), timeout)

    def most(self, names):
        """The most of these names that begin ids of one step, NAME-..., of all steps until now."""
        self.num_looks += 1
        mark = f"look{self.num_looks}"
        self.run(mark)
        assert self._has(mark, timeout=60), "the watch has ended"
        with self.changed:
            return max(len({asked.split("-")[0] for asked in step} & set(names)) for step in self.steps)

    def end(self):
        self.call.cancel()
        self.thread.join()
