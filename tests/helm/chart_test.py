# SPDX-License-Identifier: Apache-2.0
"""helm/continuo renders what Kubernetes takes and what its pods need, for every example."""
import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import chart
import yaml

SCHEMAS = chart.ROOT / "tests/helm/schemas"


def kubeconform(text):
    return chart.run("kubeconform", "-strict", "-summary", "-output", "json", "-schema-location",
                     f"{SCHEMAS}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json", "-", input=text)


class ExamplesTest(unittest.TestCase):
    """Facts that hold for every object of every example."""

    def each(self):
        for example in chart.EXAMPLES:
            with self.subTest(example=example.name):
                yield chart.objects("-f", example)

    def test_helm_finds_nothing_to_say(self):
        for example in chart.EXAMPLES:
            with self.subTest(example=example.name):
                done = chart.run("helm", "lint", "--strict", "--quiet", chart.CHART, "-f", example)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_kubernetes_takes_every_object(self):
        for example in chart.EXAMPLES:
            with self.subTest(example=example.name):
                text = chart.render("-f", example)
                done = kubeconform(text)
                told = json.loads(done.stdout)
                self.assertEqual(done.returncode, 0, told)
                num = len(chart.objects("-f", example))
                self.assertEqual(told["summary"],
                                 {"valid": num, "invalid": 0, "errors": 0, "skipped": 0})

    def test_names_that_look_like_numbers_stay_names(self):
        text = chart.render("-f", chart.ROOT / "tests/helm/values/ambiguous.yaml", release="true",
                            namespace="456")
        told = json.loads(kubeconform(text).stdout)
        self.assertEqual(told["summary"]["invalid"] + told["summary"]["errors"], 0, told)

    def check_names(self, rendered):
        names = [(o["kind"], o["metadata"]["name"]) for o in rendered]
        self.assertEqual(len(names), len(set(names)))
        for kind, name in names:
            first = "a-z" if kind == "Service" else "a-z0-9"
            self.assertRegex(name, rf"^[{first}]([a-z0-9-]{{0,61}}[a-z0-9])?$")

    def test_objects_have_names_of_their_own_that_dns_takes(self):
        for rendered in self.each():
            self.check_names(rendered)

    def test_names_of_releases_that_dns_does_not_take_make_such_that_it_does(self):
        pool = ["--set", "pools.a-name-of-20-letters.model.path=/m"]
        for release in ("my.release", "r" * 53, "r" * 33 + "--x", "r" * 34 + ".x"):
            with self.subTest(release=release):
                self.check_names(chart.objects(*pool, release=release))

    def test_pods_are_restricted(self):
        # The requirements of Pod Security's level "restricted", and a read-only root file system.
        for rendered in self.each():
            for owner, pod in chart.pods(rendered):
                with self.subTest(pod=owner["metadata"]["name"]):
                    self.assertIs(pod["automountServiceAccountToken"], False)
                    self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
                    self.assertEqual(pod["securityContext"]["seccompProfile"],
                                     {"type": "RuntimeDefault"})
                    self.assertFalse({"hostNetwork", "hostPID", "hostIPC"} & pod.keys())
                    for container in pod["containers"] + pod.get("initContainers", []):
                        self.assertEqual(container["securityContext"], {
                            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                            "capabilities": {"drop": ["ALL"]}})
                    for volume in pod.get("volumes", []):
                        self.assertNotIn("hostPath", volume)

    def test_mounts_have_volumes_and_volumes_mounts(self):
        for rendered in self.each():
            for owner, pod in chart.pods(rendered):
                mounted = {m["name"] for c in pod["containers"] + pod.get("initContainers", [])
                           for m in c.get("volumeMounts", [])}
                self.assertEqual(mounted, {v["name"] for v in pod.get("volumes", [])},
                                 owner["metadata"]["name"])

    def test_services_budgets_scalers_and_policies_find_their_pods(self):
        for rendered in self.each():
            deployments = {o["metadata"]["name"]: o["spec"]["template"]["metadata"]["labels"]
                           for o in rendered if o["kind"] == "Deployment"}

            def selected(labels):
                return [n for n, of in deployments.items() if labels.items() <= of.items()]
            for o in rendered:
                name, kind = o["metadata"]["name"], o["kind"]
                with self.subTest(kind=kind, name=name):
                    if kind == "Service":
                        self.assertEqual(selected(o["spec"]["selector"]),
                                         [re.sub("-(metrics|headless|scaler)$", "", name)])
                    elif kind in ("PodDisruptionBudget", "Deployment", "InferencePool"):
                        self.assertEqual(selected(o["spec"]["selector"]["matchLabels"]), [name])
                    elif kind in ("HorizontalPodAutoscaler", "ScaledObject"):
                        self.assertIn(o["spec"]["scaleTargetRef"]["name"], deployments)
                        target = next(d for d in rendered if d["kind"] == "Deployment" and
                                      d["metadata"]["name"] == name)
                        self.assertNotIn("replicas", target["spec"])
                    elif kind == "NetworkPolicy":
                        self.assertTrue(selected(o["spec"]["podSelector"]["matchLabels"]))

    def test_pods_have_the_time_that_their_end_takes(self):
        for rendered in self.each():
            for owner, pod in chart.pods(rendered):
                container = pod["containers"][0]
                drain = int(next(a for a in container["args"] if a.startswith("--drain_grace="))
                            .removeprefix("--drain_grace=").removesuffix("s"))
                pre_stop = (container.get("lifecycle", {}).get("preStop", {})
                            .get("sleep", {}).get("seconds", 0))
                delay = sum(int(a.removeprefix("--drain_delay=").removesuffix("s"))
                            for a in container["args"] if a.startswith("--drain_delay="))
                # Times beyond the drain: on workers 1 s of migrations and 20 s for the engine to
                # end, on gateways 2 s for clients to leave and 1 s until no call comes.
                rest = 21 if container["name"] == "worker" else 3
                self.assertGreater(pod["terminationGracePeriodSeconds"], pre_stop + delay + drain + rest,
                                   owner["metadata"]["name"])

    def test_gateways_ask_for_every_pool_by_its_services_name(self):
        for rendered in self.each():
            gateway = next(p for o, p in chart.pods(rendered)
                           if o["metadata"]["name"].endswith("-gateway"))
            workers = gateway["containers"][0]["args"][0].removeprefix("--workers=").split(";")
            for worker in workers:
                pool, _, target = worker.partition("=dns:///")
                self.assertTrue(target.split(".")[0].endswith(f"-worker-{pool}"), worker)
            names = {w.split("=dns:///")[1].split(".")[0] for w in workers}
            headless = {o["metadata"]["name"] for o in rendered if o["kind"] == "Service" and
                        o["spec"].get("clusterIP") == "None" and
                        not o["metadata"]["name"].endswith(("-metrics", "-gateway-headless"))}
            peers = [a.removeprefix("--scaler_peers=dns:///").split(".")[0]
                     for a in gateway["containers"][0]["args"] if a.startswith("--scaler_peers=")]
            self.assertEqual(names | set(peers), headless)


class SchemasTest(unittest.TestCase):
    """The committed schemas refuse what the API server would refuse."""

    def refused(self, change, kind="Deployment"):
        rendered = chart.objects("-f", chart.ROOT / "deploy/examples/production.yaml")
        broken = copy.deepcopy(next(o for o in rendered if o["kind"] == kind))
        change(broken)
        done = kubeconform(yaml.safe_dump(broken))
        self.assertEqual(json.loads(done.stdout)["summary"]["invalid"], 1, done.stdout)

    def test_a_field_that_kubernetes_does_not_know(self):
        self.refused(lambda o: o["spec"]["template"]["spec"]["containers"][0].update(argz=[]))

    def test_a_value_of_the_wrong_type(self):
        self.refused(lambda o: o["spec"].update(minReadySeconds="5"))

    def test_a_field_that_is_missing(self):
        self.refused(lambda o: o["spec"].pop("selector"))

    def test_a_field_that_an_operator_does_not_know(self):
        self.refused(lambda o: o["spec"]["endpoints"][0].update(intervall="5s"), "ServiceMonitor")


class PackageTest(unittest.TestCase):
    def test_the_package_renders_the_same_and_has_no_tests(self):
        with tempfile.TemporaryDirectory() as folder:
            done = chart.run("helm", "package", chart.CHART, "-d", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            package = next(pathlib.Path(folder).iterdir())
            example = ["-f", chart.ROOT / "deploy/examples/production.yaml"]
            self.assertEqual(*(chart.without_token(chart.render(*example, chart=where))
                               for where in (package, chart.CHART)))
            names = subprocess.run(["tar", "tzf", package], text=True, capture_output=True,
                                   check=True).stdout
            self.assertNotIn("_test.yaml", names)

    def test_a_chart_that_depends_on_this_one_switches_it(self):
        version = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())["version"]
        with tempfile.TemporaryDirectory() as folder:
            parent = pathlib.Path(folder)
            (parent / "Chart.yaml").write_text(yaml.safe_dump({
                "apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [
                    {"name": "continuo", "version": version, "repository": f"file://{chart.CHART}",
                     "condition": "continuo.enabled"}]}))
            (parent / "values.yaml").write_text(yaml.safe_dump({
                "continuo": {"enabled": False, "pools": {"m": {"model": {"path": "/models/m"}}}}}))
            (parent / "templates").mkdir()
            (parent / "templates/own.yaml").write_text(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\n")
            done = chart.run("helm", "dependency", "update", parent)
            self.assertEqual(done.returncode, 0, done.stderr)

            def names(*arguments):
                return sorted(f"{o['kind']}/{o['metadata']['name']}"
                              for o in chart.objects(*arguments, chart=parent))
            self.assertEqual(names(), ["ConfigMap/own"])
            alone = [f"{o['kind']}/{o['metadata']['name']}" for o in chart.objects(*chart.MINIMAL)]
            self.assertEqual(names("--set", "continuo.enabled=true"), sorted([*alone, "ConfigMap/own"]))

    def test_readme_and_flags_are_up_to_date(self):
        done = subprocess.run([sys.executable, chart.ROOT / "scripts/chart.py", "--check"],
                              text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
