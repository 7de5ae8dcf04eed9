# SPDX-License-Identifier: Apache-2.0
"""A Prometheus of the tests' own, and the model of the fleet that it scrapes."""
import json
import pathlib
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

import queries
import yaml

import fleet  # found by queries

TIMEOUT_S = 120
CONFIG = {"model_type": "qwen3", "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
          "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
          "tie_word_embeddings": True}


def make_model(folder):
    """A tiny one, in a folder of this one."""
    config, model = folder / "config.json", folder / "tiny"
    config.write_text(json.dumps(CONFIG))
    subprocess.run([fleet.BIN / "continuo-make-model", f"--config={config}", f"--out={model}", "--seed=7"],
                   check=True, capture_output=True)
    return model


class NotReady(Exception):
    """Prometheus is starting."""


class Prometheus:
    """Debian's Prometheus on a loopback port, with the alerts; every `for` is cut to 2 s. `change` says
    what else is to be changed of the rules, `jobs` stands in place of a job for the targets."""

    def __init__(self, targets, change=lambda rules: rules, interval="2s", jobs=None):
        self.folder = tempfile.TemporaryDirectory(prefix="continuo-prometheus-")
        folder = pathlib.Path(self.folder.name)
        rules = re.sub(r"^( +for): .*$", r"\1: 2s", queries.ALERTS.read_text(), flags=re.M)
        (folder / "alerts.yaml").write_text(change(rules))
        (folder / "prometheus.yaml").write_text(yaml.safe_dump({
            "global": {"scrape_interval": interval, "scrape_timeout": interval,
                       "evaluation_interval": "1s"},
            "rule_files": ["alerts.yaml"],
            "scrape_configs": jobs or [{"job_name": "pods", "static_configs": [
                {"targets": [address], "labels": {"namespace": "test", "pod": pod}}
                for pod, address in targets.items()]}]}))
        self.address = f"127.0.0.1:{fleet.free_port()}"
        self.log = open(folder / "log", "w+")
        self.process = subprocess.Popen(
            [queries.ROOT / "build/tools/bin/prometheus", f"--config.file={folder}/prometheus.yaml",
             f"--storage.tsdb.path={folder}/data", f"--web.listen-address={self.address}"],
            stdout=subprocess.DEVNULL, stderr=self.log)

    def get(self, path, **parameters):
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                raise NotReady from error
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        except urllib.error.URLError as error:
            raise NotReady from error

    def value(self, query):
        """The value of the query's one series; None where it has none."""
        result = self.get("query", query=query)["result"]
        assert len(result) <= 1, (query, result)
        return float(result[0]["value"][1]) if result else None

    def values(self, query, begin, end):
        """The values of all series at all times, without NaN."""
        result = self.get("query_range", query=query, start=begin, end=end, step=1)["result"]
        return [float(v) for series in result for _, v in series["values"] if v != "NaN"]

    def label_values(self, selector, label, begin, end):
        """The values of a variable, queried as Grafana does."""
        return self.get(f"label/{label}/values", **{"match[]": selector, "start": begin, "end": end})

    def panels(self, begin, end, **chosen):
        """(dashboard, panel), query and values of every panel's queries, with everything but `chosen`."""
        for dashboard, panel, query in queries.panel_queries(**chosen):
            yield (dashboard, panel), query, self.values(query.replace("[1m]", "[10s]"), begin, end)

    def wait_for(self, query, holds, what):
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                value = self.value(query)
                if holds(value):
                    return value
            except NotReady as error:
                value = error
            if self.process.poll() is not None:
                self.log.seek(0)
                raise AssertionError(self.log.read())
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: {query} is {value}")
            time.sleep(0.2)  # polls another process; nothing to be notified by

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()
        self.folder.cleanup()
