# SPDX-License-Identifier: Apache-2.0
"""Finds the definitions of the custom resources that the chart may make, in the Go modules of their
operators."""
import json
import pathlib
import subprocess
import tempfile

CRDS = [
    ("github.com/prometheus-operator/prometheus-operator@v0.85.0", "example/prometheus-operator-crd",
     ["monitoring.coreos.com_podmonitors.yaml", "monitoring.coreos.com_servicemonitors.yaml",
      "monitoring.coreos.com_prometheusrules.yaml"]),
    ("github.com/kedacore/keda/v2@v2.18.0", "config/crd/bases", ["keda.sh_scaledobjects.yaml"]),
    ("sigs.k8s.io/gateway-api@v1.4.0", "config/crd/standard",
     ["gateway.networking.k8s.io_httproutes.yaml", "gateway.networking.k8s.io_grpcroutes.yaml",
      "gateway.networking.k8s.io_backendtlspolicies.yaml"]),
    ("sigs.k8s.io/gateway-api-inference-extension@v1.4.0", "config/crd/bases",
     ["inference.networking.k8s.io_inferencepools.yaml"]),
    ("github.com/envoyproxy/gateway@v1.6.0", "charts/gateway-helm/crds/generated",
     ["gateway.envoyproxy.io_backendtrafficpolicies.yaml"]),
    ("github.com/cert-manager/cert-manager@v1.19.1", "deploy/crds",
     ["cert-manager.io_certificates.yaml"]),
]


def module(name):
    """The folder of the Go module, which is fetched if necessary."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "go.mod").write_text("module local/schemas\n")
        answer = subprocess.run(["go", "mod", "download", "-json", name], cwd=folder, text=True,
                                capture_output=True)
    told = json.loads(answer.stdout)
    if "Dir" not in told:
        raise SystemExit(f"{name}: {told.get('Error', answer.stderr)}")
    return pathlib.Path(told["Dir"])


def files():
    """(module, path) of each definition."""
    for name, inside, names in CRDS:
        root = module(name) / inside
        for file in names:
            yield name, root / file
