# SPDX-License-Identifier: Apache-2.0
"""The programs start with what the chart gives them: for every example, the arguments of every pod,
as they are but for files and free ports, are those of a real gateway or worker that gets ready, with
probes as the kubelet asks them."""
import pathlib
import signal
import sys
import tempfile
import unittest
import urllib.request

import chart

sys.path.insert(0, str(chart.ROOT / "tests/e2e"))
import certificates  # noqa: E402
import fleet  # noqa: E402
from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402

FREE_PORTS = ["--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0"]


class ProgramsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.authority = certificates.Authority()
        cls.certificate, cls.key = cls.authority.issue("pod", 1)
        cls.cache = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.cache.cleanup)
        keys = pathlib.Path(cls.authority.folder) / "keys"
        keys.write_text("alice sk-0c1f6b0e8a5d4c7f\n")
        token = pathlib.Path(cls.authority.folder) / "token"
        token.write_text("token-of-the-fleet-01\n")
        cls.files = {"tls.crt": cls.certificate, "tls.key": cls.key, "ca.crt": cls.authority.ca,
                     "keys": keys, "token": token}

    def arguments(self, pod):
        """The arguments that Kubernetes would start, with files of this test in place of the
        Secrets'."""
        container = pod["containers"][0]
        mounts = [m["mountPath"] for m in container.get("volumeMounts", [])]
        result = []
        for argument in container["args"]:
            self.assertNotIn("$", argument)
            flag, _, value = argument.partition("=")
            if value.startswith("/etc/continuo/"):
                folder, name = value.rsplit("/", 1)
                self.assertIn(folder, mounts, "the file of a flag is not mounted")
                known = pathlib.PurePath(folder).name
                value = self.files[known if known in ("keys", "token") else name]
            elif flag == "--model":
                self.assertTrue(value.startswith("/models"), value)
                value = fleet.DEMO_MODEL
            elif flag == "--weights_cache":
                self.assertIn(value, mounts)
                value = self.cache.name
            result.append(f"{flag}={value}")
        return result

    def probe(self, pod, program):
        """The readiness probe, answered as the kubelet sees it."""
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = pod["containers"][0].get(name)
            if probe is None:
                continue
            if "grpc" in probe:
                self.assertFalse(any("--tls_cert_file" in a for a in program.arguments),
                                 "the kubelet's gRPC probe knows no TLS")
                with fleet.grpc.insecure_channel(program.address) as channel:
                    answer = health_pb2_grpc.HealthStub(channel).Check(
                        health_pb2.HealthCheckRequest(service=probe["grpc"].get("service", "")),
                        timeout=10)
                self.assertEqual(answer.status, health_pb2.HealthCheckResponse.SERVING)
            else:
                url = f"http://{program.metrics_address}{probe['httpGet']['path']}"
                with urllib.request.urlopen(url, timeout=10) as answer:
                    self.assertEqual(answer.status, 200)

    def check(self, pod):
        container = pod["containers"][0]
        arguments = self.arguments(pod)
        ports = {p["name"]: p["containerPort"] for p in container["ports"]}
        if container["name"] == "gateway":
            http = [] if "--http_listen=off" in arguments else ["--http_listen=127.0.0.1:0"]
            self.assertEqual("http" in ports, bool(http))
            scaler = ["--scaler_listen=127.0.0.1:0"] if "scaler" in ports else []
            self.assertEqual(any(a.startswith("--scaler_listen") for a in arguments), bool(scaler))
            program = fleet.Program("continuo-gateway", *arguments, *FREE_PORTS, *http, *scaler)
        else:
            program = fleet.Program("continuo-worker", *arguments, *FREE_PORTS)
        try:
            if any(a.startswith("--device=cuda") for a in arguments):
                # A build without GPUs accepts every flag but has no such device.
                record = program.wait_for_log("the worker ends")
                self.assertIn('device "cuda:', record["reason"])
                return
            program.wait_until_listening()
            self.probe(pod, program)
            if any(a.startswith("--drain_delay") for a in arguments):
                program.signal(signal.SIGTERM)
                program.wait_for_log("about to drain")  # and a second signal ends the wait
            self.assertEqual(program.terminate(), 0)
        finally:
            program.kill()

    def test_programs_start_with_the_charts_arguments(self):
        for example in chart.EXAMPLES:
            for owner, pod in chart.pods(chart.objects("-f", example)):
                with self.subTest(example=example.name, pod=owner["metadata"]["name"]):
                    self.check(pod)

    def test_ports_are_the_programs_defaults(self):
        # The chart sets no --listen, so its ports have to be the defaults in --help.
        import subprocess
        for name, expected in (("gateway", {"listen": "grpc", "http_listen": "http",
                                            "metrics_listen": "metrics"}),
                               ("worker", {"listen": "grpc", "metrics_listen": "metrics"})):
            told = subprocess.run([chart.BIN / f"continuo-{name}", "--help"], text=True,
                                  capture_output=True, check=True).stdout
            pod = next(p for _, p in chart.pods(chart.objects(*chart.MINIMAL))
                       if p["containers"][0]["name"] == name)
            ports = {p["name"]: p["containerPort"] for p in pod["containers"][0]["ports"]}
            for flag, port in expected.items():
                section = told[told.index(f"--{flag}="):]
                self.assertIn(f"[0.0.0.0:{ports[port]}]", section[:400], flag)


if __name__ == "__main__":
    unittest.main()
