# SPDX-License-Identifier: Apache-2.0
"""Alerts, dashboards and what scales by metrics: they parse, are up to date, have runbooks and ask for
metrics that the programs have."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import queries
import yaml

import fleet  # found by queries
from prometheus import Prometheus

ROOT = queries.ROOT
RUNBOOKS = ROOT / "deploy/monitoring/runbooks.md"


def promtool(*arguments):
    return subprocess.run([ROOT / "build/tools/bin/promtool", *map(str, arguments)], text=True,
                          capture_output=True)


class ScrapeTest(unittest.TestCase):
    """The job for pods that the chart annotates, with pods as Kubernetes tells of them."""

    def test_series_of_pods_have_their_pool_and_revision(self):
        job, = yaml.safe_load((ROOT / "deploy/monitoring/scrape.yaml").read_text())["scrape_configs"]
        self.assertEqual(job.pop("kubernetes_sd_configs"), [{"role": "pod"}])

        def pod(name, port, **more):
            labels = {"namespace": "llm", "pod_name": name, "pod_phase": "Running",
                      "pod_container_port_number": port, "pod_label_app_kubernetes_io_name": "continuo",
                      "pod_annotation_prometheus_io_scrape": "true",
                      "pod_annotation_prometheus_io_port": "9090", **more}
            return {"targets": [f"127.0.0.1:{port}"],
                    "labels": {f"__meta_kubernetes_{k}": v for k, v in labels.items()}}
        job["static_configs"] = [
            pod("worker", "9090", pod_label_continuo_pool="canary", pod_label_pod_template_hash="5c7b"),
            pod("worker", "50051", pod_label_continuo_pool="canary", pod_label_pod_template_hash="5c7b"),
            pod("gateway", "9091", pod_annotation_prometheus_io_port="9091",
                pod_label_pod_template_hash="7f9d"),
            pod("done", "9090", pod_phase="Succeeded"),
            pod("other", "9090", pod_label_app_kubernetes_io_name="other"),
            pod("quiet", "9090", pod_annotation_prometheus_io_scrape="false")]
        prometheus = Prometheus({}, jobs=[job])
        self.addCleanup(prometheus.stop)
        prometheus.wait_for("vector(1)", lambda v: v == 1, "an answer")
        prometheus.wait_for("count(up)", lambda v: v == 2, "two targets")
        self.assertEqual(
            {t["labels"]["pod"]: {k: v for k, v in t["labels"].items() if k not in ("job", "instance", "pod")}
             for t in prometheus.get("targets")["activeTargets"]},
            {"worker": {"namespace": "llm", "continuo_pool": "canary", "pod_template_hash": "5c7b"},
             "gateway": {"namespace": "llm", "pod_template_hash": "7f9d"}})


class AlertsTest(unittest.TestCase):
    def setUp(self):
        self.alerts = [r for r in queries.rules() if "alert" in r]

    def test_promtool_takes_the_rules(self):
        done = promtool("check", "rules", "--lint=all", "--lint-fatal", queries.ALERTS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_alerts_fire_as_they_should(self):
        done = promtool("test", "rules", ROOT / "tests/monitoring/alerts_test.yaml")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_alert_is_seen_to_fire(self):
        cases = yaml.safe_load((ROOT / "tests/monitoring/alerts_test.yaml").read_text())["tests"]
        fired = {c["alertname"] for t in cases for c in t.get("alert_rule_test", [])
                 if c["exp_alerts"]}
        self.assertEqual(fired, {a["alert"] for a in self.alerts})

    def test_every_alert_says_what_and_how_bad_and_has_a_runbook(self):
        page = RUNBOOKS.read_text()
        sections = re.findall(r"^## (Continuo\w+)$", page, re.M)
        self.assertEqual(sorted(sections), sorted(a["alert"] for a in self.alerts))
        for alert in self.alerts:
            with self.subTest(alert=alert["alert"]):
                self.assertIn(alert["labels"]["severity"], ("critical", "warning", "info"))
                self.assertEqual(set(alert["annotations"]),
                                 {"summary", "description", "runbook_url"})
                self.assertEqual(alert["annotations"]["runbook_url"],
                                 f"deploy/monitoring/runbooks.md#{alert['alert'].lower()}")
        for link in re.findall(r"\(#(\w+)\)", page):
            self.assertIn(link, [s.lower() for s in sections])

    def test_deploy_monitoring_is_the_charts(self):
        for name in ("alerts.yaml", "dashboards"):
            self.assertEqual((ROOT / "deploy/monitoring" / name).resolve(),
                             (queries.FILES / name).resolve())


class DashboardsTest(unittest.TestCase):
    def test_files_are_up_to_date(self):
        done = subprocess.run([sys.executable, ROOT / "scripts/dashboards.py", "--check"],
                              text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_ids_and_places_are_panels_own(self):
        uids = [d["uid"] for d in queries.dashboards().values()]
        self.assertEqual(len(uids), len(set(uids)))
        for name, dashboard in queries.dashboards().items():
            ids = [p["id"] for p in dashboard["panels"]]
            self.assertEqual(len(ids), len(set(ids)), name)
            taken = set()
            for panel in dashboard["panels"]:
                g = panel["gridPos"]
                self.assertLessEqual(g["x"] + g["w"], 24)
                cells = {(x, y) for x in range(g["x"], g["x"] + g["w"])
                         for y in range(g["y"], g["y"] + g["h"])}
                self.assertFalse(cells & taken, f"{name}: {panel['title']} covers another")
                taken |= cells

    def test_variables_are_defined(self):
        for name, dashboard in queries.dashboards().items():
            known = {"__rate_interval"}
            for variable in dashboard["templating"]["list"]:
                asked = variable["query"]["query"] if variable["type"] == "query" else ""
                self.assertLessEqual(set(re.findall(r"\$\{?(\w+)", asked)), known,
                                     f"{name}: {variable['name']} asks for one that comes later")
                known.add(variable["name"])
            for panel in queries.panels(dashboard):
                for target in panel["targets"]:
                    used = set(re.findall(r"\$\{?(\w+)", target["expr"]))
                    self.assertLessEqual(used, known, f"{name}: {panel['title']}")

    def test_what_an_operator_looks_for_is_there(self):
        titles = {p["title"] for d in queries.dashboards().values() for p in queries.panels(d)}
        self.assertLessEqual({"Time to first token", "Inter-token latency", "KV occupancy", "Queue",
                              "Batch size", "Preemptions", "Prefix cache hits",
                              "Migrations by reason", "Requests by status"}, titles)


class QueriesTest(unittest.TestCase):
    def test_every_query_parses(self):
        rules = [{"record": f"q:{i}", "expr": q} for i, q in enumerate(queries.all_queries())]
        self.assertGreater(len(rules), 100)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rules.yaml"
            path.write_text(yaml.safe_dump({"groups": [{"name": "q", "rules": rules}]}))
            done = promtool("check", "rules", path)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_metric_is_one_that_the_programs_have(self):
        worker = fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", "--kv_cache_memory=16MiB")
        gateway = fleet.start_gateway([worker])
        try:
            fleet.Client(gateway.address).wait_for_model(1)
            # {metric: its labels}; Prometheus knows those of what it makes itself.
            made = {"up", "ALERTS"} | {r["record"] for r in queries.rules() if "record" in r}
            known = {}
            for program in (worker, gateway):
                with urllib.request.urlopen(f"http://{program.metrics_address}/metrics",
                                            timeout=10) as page:
                    for line in page.read().decode().splitlines():
                        if line and line[0] != "#":
                            name, labels = re.match(r"([\w:]+)(?:\{(.*)\})? ", line).groups()
                            known.setdefault(name, {"namespace", "pod"}).update(
                                re.findall(r'(\w+)="', labels or ""))
        finally:
            gateway.kill()
            worker.kill()
        used = set()
        for query in queries.all_queries():
            names = queries.metric_names(query)
            self.assertLessEqual(names, known.keys() | made, query)
            used |= names
            for metric, label in queries.labels_asked(query):
                if metric not in made:
                    self.assertIn(label, known[metric], query)
        self.assertGreater(len(used), 35)
        for dashboard, name, selector, label in queries.variables():
            with self.subTest(dashboard=dashboard, variable=name):
                (metric,) = queries.metric_names(selector)
                self.assertIn(label, known[metric])

    def test_a_worker_that_loads_hides_nothing_of_the_others(self):
        series = []
        for pod, used, total in (("a", 75, 100), ("b", 25, 100), ("loads", 0, 0)):
            labels = f'{{namespace="prod",model="m",pod="r-continuo-worker-m-x-{pod}"}}'
            series += [{"series": f"continuo_kv_blocks_used{labels}", "values": str(used)},
                       {"series": f"continuo_kv_blocks_total{labels}", "values": str(total)}]
        queries_of = [q for q in queries.scaler_queries() if "kv_blocks_used" in q]
        queries_of += [q for _, title, q in queries.panel_queries()
                       if title in ("KV occupancy", "KV cache in use")]
        # The use of each worker, of all of them together, and their mean.
        each = {'{pod="r-continuo-worker-m-x-a"}': 0.75, '{pod="r-continuo-worker-m-x-b"}': 0.25}
        expected = [{"{}": 1.0}, each, {"{}": 0.5}, each, {"{}": 0.5}]
        self.assertEqual(len(queries_of), len(expected), queries_of)
        for query, samples in zip(queries_of, expected):
            with self.subTest(query=query):
                self.check_samples(series, f"sum by (pod) ({query})", samples)

    def check_samples(self, series, query, samples):
        """Checks the answers of Prometheus to queries where only `series` exists."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "test.yaml"
            path.write_text(yaml.safe_dump({"tests": [{
                "interval": "1m", "input_series": series, "promql_expr_test": [
                    {"expr": query, "eval_time": "0m", "exp_samples": [
                        {"labels": l, "value": v} for l, v in samples.items()]}]}]}))
            done = promtool("test", "rules", path)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_scalers_ask_for_what_the_adapter_makes(self):
        adapter = yaml.safe_load((ROOT / "deploy/monitoring/prometheus-adapter.yaml").read_text())
        made = {r["name"]["as"] for r in adapter["rules"]}
        scaler = next(o for o in queries.chart.objects(
            "--set", "pools.m.model.path=/m,pools.m.autoscaling.enabled=true")
            if o["kind"] == "HorizontalPodAutoscaler")
        self.assertEqual({m["pods"]["metric"]["name"] for m in scaler["spec"]["metrics"]}, made)

    def test_names_are_found_in_queries(self):
        self.assertEqual(queries.metric_names(
            'sum by (a, b) (rate(x_total{c="d e",f=~"g"}[5m])) / (y:z{h="i"} > 0) and on (j) k'),
            {"x_total", "y:z", "k"})
        self.assertEqual(set(queries.labels_asked('rate(x{a="b=c",d!~"}"}[5m]) / y{e=~".*"}')),
                         {("x", "a"), ("x", "d"), ("y", "e")})


if __name__ == "__main__":
    unittest.main()
