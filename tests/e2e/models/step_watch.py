# SPDX-License-Identifier: Apache-2.0
"""What the steps of a worker had in them, for tests of requests that are to run beside each other."""
import threading

import grpc
from continuo.v1 import worker_pb2


class StepWatch:
    """Collects the request ids of each step of a worker."""

    def __init__(self, client, run):
        """`run(request_id)` makes the worker run a step for a request of that id."""
        self.steps, self.run = [], run
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
            if error.code() != grpc.StatusCode.CANCELLED:
                raise

    def _has(self, request_id, timeout):
        with self.changed:
            return self.changed.wait_for(lambda: any(request_id in step for step in self.steps), timeout)

    def end(self):
        """The sets of ids, one a step, of all steps until now."""
        self.run("last")
        seen = self._has("last", timeout=60)
        self.call.cancel()
        self.thread.join()
        assert seen, "the watch has ended"
        return self.steps
