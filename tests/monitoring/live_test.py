# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes a real fleet, two gateways and two workers, under load by `continuo bench`:
what it counts and panels draw is what the clients counted, every panel of every dashboard has data, with
all pods and with those that its variables offer, and an alert fires for real when a worker dies, and ends
when it is back."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import queries
from prometheus import TIMEOUT_S, Prometheus, make_model

import fleet  # found by queries
from fleet import grpc, pb

# These are 0 in a healthy fleet, and in one that lost a worker; fired_test raises them.
ZERO_WHEN_WELL = {("fleet", "Failed"), ("fleet", "Rejected or given up"),
                  ("fleet", "Errors of workers"), ("worker", "Defects"), ("slo", "Failed"),
                  ("slo", "Budget used, 6 hours"), ("slo", "Failed requests by status"),
                  ("slo", "Rejected for overload"), ("canary", "Failed"),
                  ("fleet", "Requests without a worker")}


class LiveTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="continuo-live-")
        self.addCleanup(self.folder.cleanup)
        self.model = make_model(pathlib.Path(self.folder.name))
        # They have addresses of their own, so that the one that dies can come back.
        self.ports = [(fleet.free_port(), fleet.free_port()) for _ in range(2)]
        self.workers = [self.worker(i) for i in range(2)]
        self.gateways = [fleet.start_gateway(self.workers, "--routing_policy=affinity")
                         for _ in range(2)]
        for gateway in self.gateways:
            fleet.Client(gateway.address).wait_for_model(2)
        self.prometheus = Prometheus(
            {f"gateway-{i}": g.metrics_address for i, g in enumerate(self.gateways)}
            | {f"worker-{i}": w.metrics_address for i, w in enumerate(self.workers)})
        self.begin = time.time()
        self.prometheus.wait_for("sum(up)", lambda v: v == 4, "four targets")

    def tearDown(self):
        self.prometheus.stop()
        for program in self.gateways + self.workers:
            program.kill()

    def worker(self, i):
        port, metrics = self.ports[i]
        # The load does not fit into this KV cache without preemptions.
        return fleet.Program(
            "continuo-worker", f"--model={self.model}", f"--listen=127.0.0.1:{port}",
            f"--metrics_listen=127.0.0.1:{metrics}", "--threads=1", "--kv_blocks=160",
            "--max_running=32").wait_until_listening()

    def bench(self, gateway, name, *flags):
        path = pathlib.Path(self.folder.name) / f"{name}.json"
        process = subprocess.Popen(
            [fleet.BIN / "continuo", "bench", f"--server={gateway.address}", f"--json={path}",
             "--concurrency=24", "--prompt_tokens=uniform:32:160", "--output_tokens=uniform:64:160",
             "--shared_prefix_tokens=64", "--num_prefixes=2", *flags],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

        def report():
            error = process.communicate(timeout=TIMEOUT_S * 2)[1]
            self.assertEqual(process.returncode, 0, error)
            return json.loads(path.read_text())
        return report

    def load(self, name, requests, during=None):
        """Puts both gateways under load; returns the sums of the clients' counts."""
        reports = [self.bench(g, f"{name}-{i}", f"--seed={i}", f"--requests={requests}")
                   for i, g in enumerate(self.gateways)]
        if during is not None:
            during()
        reports = [r() for r in reports]
        for report in reports:
            self.assertEqual(report["requests"]["failed"], 0, report)
        return {"ok": sum(r["requests"]["ok"] for r in reports),
                "rejected": sum(r["requests"]["rejected"] for r in reports),
                "prompt": sum(r["tokens"]["prompt"] for r in reports),
                "cached": sum(r["tokens"]["cached_prompt"] for r in reports),
                "output": sum(r["tokens"]["output"] for r in reports),
                "migrations": sum(r["migrations"] for r in reports),
                "first_token": max(r["latency_seconds"]["time_to_first_token"]["max"]
                                   for r in reports)}

    def settled(self, num_targets=4):
        """Waits for a scrape of all present targets that began when nothing was open."""
        now = time.time()
        self.prometheus.wait_for(f"count((timestamp(up) > {now}) and up == 1)",
                                 lambda v: v == num_targets, "a scrape of each target")

    def check_equal(self, expected):
        for query, value in expected.items():
            self.assertEqual(self.prometheus.value(query), value, query)

    def test_what_is_seen_is_what_happens(self):
        requests = 150
        begin = time.time()
        counted = self.load("well", requests)
        self.settled()
        self.check_drawn(counted, 2 * requests, begin, time.time())
        ok = counted["ok"]
        self.assertEqual(ok + counted["rejected"], 2 * requests)
        self.check_equal({
            'sum(continuo_gateway_requests_total{code="OK"})': ok,
            'sum(continuo_gateway_requests_total{code="RESOURCE_EXHAUSTED"})': counted["rejected"],
            'sum(continuo_gateway_requests_total)': 2 * requests,
            'sum(continuo_gateway_tenant_tokens_total{kind="prompt"})': counted["prompt"],
            'sum(continuo_gateway_tenant_tokens_total{kind="completion"})': counted["output"],
            "sum(continuo_gateway_time_to_first_token_seconds_count)": ok,
            # The times that gateways saw are within the times that clients waited.
            "sum(continuo_gateway_time_to_first_token_seconds_sum) <= bool %f"
            % (counted["first_token"] * ok): 1,
            "sum(continuo_gateway_open_streams)": 0,
            "sum(continuo_kv_blocks_unaccounted)": 0,
        })
        # On a machine so busy that a worker's reports stay away for 2 s, streams migrate, and only the
        # workers count the work that they do more than once.
        migrations = self.prometheus.value("sum(continuo_gateway_migrations_total)")
        self.assertGreaterEqual(migrations, counted["migrations"])
        for query, value in {
                'sum(continuo_requests_total{code="OK"})': ok,
                "sum(continuo_generated_tokens_total)": counted["output"],
                "sum(continuo_prompt_tokens_total)": counted["prompt"],
                "sum(continuo_time_to_first_token_seconds_count)": ok,
                "sum(continuo_request_seconds_count)": ok}.items():
            check = self.assertGreaterEqual if migrations else self.assertEqual
            check(self.prometheus.value(query), value, query)
        self.assertGreaterEqual(
            self.prometheus.value("sum(continuo_prefix_cache_hit_tokens_total)"),
            max(counted["cached"], 1))
        self.assertGreater(self.prometheus.value("sum(continuo_preemptions_total)"), 0)

        # A worker dies under load; nobody at a client sees it.
        def kill():
            deadline = time.monotonic() + TIMEOUT_S
            while fleet.scrape(self.workers[0].metrics_address)[
                    'continuo_running_requests{model="tiny"}'] < 4:
                self.assertLess(time.monotonic(), deadline, "the worker stays idle")
                time.sleep(0.02)  # polls another process; nothing to be notified by
            self.workers[0].kill()
        lost = self.load("ill", requests, during=kill)
        firing = 'sum(ALERTS{alertname="%s",alertstate="firing",namespace="test"})'
        self.prometheus.wait_for(firing % "ContinuoWorkerLost", lambda v: v, "the alert")
        self.prometheus.wait_for(firing % "ContinuoTargetDown", lambda v: v, "the alert")
        self.settled(num_targets=3)
        self.check_equal({
            'sum(continuo_gateway_requests_total{code="OK"})': ok + lost["ok"],
            'sum(continuo_gateway_tenant_tokens_total{kind="completion"})':
                counted["output"] + lost["output"],
        })
        self.assertGreaterEqual(
            self.prometheus.value('sum(continuo_gateway_migrations_total{reason="lost"})'), 1)
        self.prometheus.wait_for('min(continuo_gateway_workers{state="lost"})', lambda v: v == 1,
                                 "both gateways to miss one")
        self.workers[0] = self.worker(0)
        for alert in ("ContinuoWorkerLost", "ContinuoTargetDown"):
            self.prometheus.wait_for(firing % alert, lambda v: v is None, f"the end of {alert}")
        self.constrain()
        # Gauges of a load show nothing if it is over between two scrapes.
        deadline = time.monotonic() + TIMEOUT_S
        while self.panels_at_zero() and time.monotonic() < deadline:
            self.load("more", requests)
        self.check_panels(time.time())

    def constrain(self):
        """Each worker compiles a grammar, finds it again and refuses another one."""
        request = pb.GenerateRequest(text="a", constraint=pb.Constraint(regex="[ab]{4}"))
        for worker in self.workers:
            client = fleet.Client(worker.address)
            for _ in range(2):
                client.generate(request)
            with self.assertRaises(grpc.RpcError):
                client.generate(pb.GenerateRequest(text="a", constraint=pb.Constraint(regex="(")))

    def panels_at_zero(self):
        """Panels that have shown 0 at most and should have shown more, with their queries."""
        return [(panel, query) for panel, query, values in
                self.prometheus.panels(self.begin, time.time())
                if values and max(values) <= 0 and panel not in ZERO_WHEN_WELL]

    def check_drawn(self, counted, requests, begin, end):
        """The area below a panel's rate is what happened, as the clients counted it."""
        # The load lasts many scrapes, since rate() extrapolates before the first and after the last of them.
        window = 30
        self.prometheus.wait_for("vector(time())", lambda t: t > end + window, "the end of its window")
        migrations = self.prometheus.value("sum(continuo_gateway_migrations_total)")
        told = {}
        for title, legend, count in (("Requests", "__auto", requests), ("Tokens", "prompt", counted["prompt"]),
                                     ("Tokens", "generated", counted["output"])):
            query = queries.substituted(queries.targets("fleet", title)[legend], window=f"{window}s",
                                        namespace="test", model="tiny")
            area = sum(self.prometheus.values(query, begin, end + window))  # a value a second
            told[title, legend] = round(area), count
            self.assertGreater(area, 0.9 * count, query)
            if not migrations:  # workers do more than clients get where streams migrate
                self.assertLess(area, 1.1 * count, query)
        # The window is the whole load, from a scrape before it on, since it may be over before the next one.
        # A sequence that was preempted finds its own beginning.
        query = queries.substituted(queries.targets("worker", "Prefix cache hits")["__auto"], namespace="test",
                                    window=f"{int(time.time() - self.begin) + 5}s", pod="worker-.")
        hits, share = self.prometheus.value(query), counted["cached"] / counted["prompt"]
        print(f"drawn and counted: {told}; prefix hits {hits:.3f} and {share:.3f}", file=sys.stderr)
        self.assertGreater(hits, 0.9 * share, query)
        if not migrations:
            self.assertLess(hits, 1.5 * share, query)

    def check_variables(self, end):
        """Checks that variables offer the present values; returns choices of one value each."""
        expected = {"namespace": ["test"], "model": ["tiny"], "pod": ["worker-0", "worker-1"]}
        for dashboard, name, selector, label in queries.variables():
            for namespace in (".*", "test"):
                offered = self.prometheus.label_values(
                    queries.substituted(selector, namespace=namespace), label, self.begin, end)
                self.assertEqual(offered, expected[name], (dashboard, selector))
        return [{"namespace": "test", "model": "tiny", "pod": pod} for pod in expected["pod"]]

    def check_panels(self, end):
        for chosen in self.check_variables(end):
            empty = {(panel, query) for panel, query, values in
                     self.prometheus.panels(self.begin, end, **chosen) if not values}
            self.assertEqual(empty, set(), f"panels without data with {chosen}")
        seen, empty = set(), []
        for panel, query, values in self.prometheus.panels(self.begin, end):
            seen.add(panel)
            if not values:
                empty.append((panel, query))
        self.assertEqual(empty, [], "panels without data")
        self.assertEqual(self.panels_at_zero(), [], "panels that show 0 under load")
        self.assertLessEqual(ZERO_WHEN_WELL, seen)
        for query in queries.scaler_queries():
            query = re.sub(r'namespace="[^"]*",pod=~"[^"]*"', 'namespace="test"', query)
            self.assertGreater(max(self.prometheus.values(query, self.begin, end)), 0, query)
        print(f"{len(seen)} panels have data", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
