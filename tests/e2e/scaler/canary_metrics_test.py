# SPDX-License-Identifier: Apache-2.0
"""A canary is seen beside the stable pool in the gateways' metrics: real workers of both pools, of which
the canary's dies under its streams."""
import pathlib
import re
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402

pb = fleet.pb


def request(tokens=5):
    return pb.GenerateRequest(text="Once upon a time",
                              stopping=pb.Stopping(max_tokens=tokens, ignore_eos=True))


class CanaryMetricsTest(unittest.TestCase):
    def setUp(self):
        self.programs = []
        self.addCleanup(lambda: [program.kill() for program in self.programs])
        # Other formats are another fingerprint, as other weights would be.
        self.stable, self.canary = (self.started(fleet.start_worker(fleet.DEMO_MODEL, flag))
                                    for flag in ("--weights=fp32", "--weights=bf16"))
        self.gateway = self.started(fleet.start_gateway(
            f"stable={self.stable.address}@1;canary={self.canary.address}@1"))
        self.client = fleet.Client(self.gateway.address)
        self.client.wait_for_model(2)

    def started(self, program):
        self.programs.append(program)
        return program

    def by_pool(self, name, **labels):
        """The sum of the series with these labels, by pool."""
        result = {}
        for series, value in fleet.scrape(self.gateway.metrics_address).items():
            if series.split("{")[0] != name:
                continue
            of = dict(re.findall(r'(\w+)="([^"]*)"', series))
            if all(of[k] == v for k, v in labels.items()):
                result[of["pool"]] = result.get(of["pool"], 0) + value
        return result

    def test_pools_are_told_apart(self):
        number = 40
        for _ in range(number):
            self.client.generate(request())
        ended = self.by_pool("continuo_gateway_requests_total", code="OK")
        self.assertEqual(ended["stable"] + ended["canary"], number)
        self.assertGreater(min(ended["stable"], ended["canary"]), 0, ended)
        for histogram in ("request", "queue", "time_to_first_token"):
            counts = self.by_pool(f"continuo_gateway_{histogram}_seconds_count")
            self.assertEqual({k: counts[k] for k in ("stable", "canary")},
                             {k: ended[k] for k in ("stable", "canary")}, histogram)
        self.assertEqual(self.by_pool("continuo_gateway_workers", state="serving"),
                         {"stable": 1, "canary": 1})
        self.assertEqual(self.by_pool("continuo_gateway_fingerprint_workers"),
                         {"stable": 1, "canary": 1})
        fingerprints = {series.split('fingerprint="')[1].split('"')[0]
                        for series in fleet.scrape(self.gateway.metrics_address)
                        if series.startswith("continuo_gateway_fingerprint_workers")}
        self.assertEqual(len(fingerprints), 2)

    def test_what_a_canary_does_to_streams_is_its_own(self):
        begun = threading.Event()

        def long_stream():
            self.client.generate(request(400), on_response=lambda r: r.deltas and begun.set())
        streams = [threading.Thread(target=long_stream) for _ in range(8)]
        for stream in streams:
            stream.start()
        self.assertTrue(begun.wait(60))
        fleet.wait_until(lambda: fleet.scrape(self.canary.metrics_address)[
            'continuo_running_requests{model="demo-model"}'] > 0, "a stream at the canary")
        self.canary.kill()
        for stream in streams:
            stream.join()
        left = self.by_pool("continuo_gateway_migrations_total", reason="lost")
        self.assertGreater(left["canary"], 0)
        self.assertEqual(left["stable"], 0)
        self.assertEqual(self.by_pool("continuo_gateway_requests_total", code="OK").get("canary", 0) +
                         self.by_pool("continuo_gateway_requests_total", code="OK")["stable"], 8)


if __name__ == "__main__":
    unittest.main(verbosity=2)
