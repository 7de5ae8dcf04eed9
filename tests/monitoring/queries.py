# SPDX-License-Identifier: Apache-2.0
"""The queries of dashboards, alerts and scalers, and how a test sends them to Prometheus."""
import json
import pathlib
import re
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
sys.path.insert(0, str(ROOT / "tests/helm"))
import chart  # noqa: E402

FILES = ROOT / "helm/continuo/files"
ALERTS = FILES / "alerts.yaml"
DASHBOARDS = sorted((FILES / "dashboards").glob("*.json"))


def dashboards():
    return {path.stem: json.loads(path.read_text()) for path in DASHBOARDS}


def panels(dashboard):
    return [p for p in dashboard["panels"] if p["type"] != "row"]


def substituted(expr, window="1m", **values):
    """The query as Grafana sends it, with everything chosen but for `values`."""
    expr = expr.replace("$__rate_interval", window)
    for name in ("namespace", "model", "pod"):
        expr = expr.replace(f"${name}", values.get(name, ".*"))
    return expr


def panel_queries(**values):
    """(dashboard, panel, query) of every target of every panel."""
    for name, dashboard in dashboards().items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield name, panel["title"], substituted(target["expr"], **values)


def targets(dashboard, title):
    """{legend: expression} of one panel, as it is in the file."""
    panel = next(p for p in panels(dashboards()[dashboard]) if p["title"] == title)
    return {t["legendFormat"]: t["expr"] for t in panel["targets"]}


def variables():
    """(dashboard, name, selector, label) of every variable that Grafana asks Prometheus for; the selector
    with the variables before it as they are written."""
    for name, dashboard in dashboards().items():
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
                yield name, variable["name"], asked[1], asked[2]


def rules():
    return [r for g in yaml.safe_load(ALERTS.read_text())["groups"] for r in g["rules"]]


def scaler_queries():
    """The queries of the chart's ScaledObjects and of prometheus-adapter."""
    for o in chart.objects("--set", "pools.m.model.path=/m,pools.m.autoscaling.enabled=true,"
                           "pools.m.autoscaling.by=keda,pools.m.autoscaling.minReplicas=0"):
        if o["kind"] == "ScaledObject":
            # The gateways answer KEDA themselves where one is external.
            yield from (t["metadata"]["query"] for t in o["spec"]["triggers"]
                        if t["type"] == "prometheus")
    adapter = yaml.safe_load((ROOT / "deploy/monitoring/prometheus-adapter.yaml").read_text())
    for rule in adapter["rules"]:
        yield (rule["metricsQuery"].replace("<<.GroupBy>>", "namespace, pod")
               .replace("<<.LabelMatchers>>", 'namespace=~".+"'))


def all_queries():
    yield from (query for _, _, query in panel_queries())
    yield from (substituted(selector) for _, _, selector, _ in variables())
    yield from (r["expr"] for r in rules())
    yield from scaler_queries()


def metric_names(expr):
    """Names of series in a query: words that are no labels, functions or keywords."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expr)
    bare = re.sub(r"\{[^}]*\}", "{}", bare)
    bare = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", "", bare)
    words = re.findall(r"(?<![\w:.])([a-zA-Z_:][\w:]*)(?!\w*\s*\()", bare)
    keywords = {"and", "or", "unless", "bool", "offset", "by", "on", "m", "h", "s"}
    return {w for w in words if w not in keywords}


def labels_asked(expr):
    """(metric, label) of every matcher in a query."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expr)
    for metric, matchers in re.findall(r"([\w:]+)\{([^}]*)\}", bare):
        for label in re.findall(r"(\w+)\s*[=!]", matchers):
            yield metric, label
