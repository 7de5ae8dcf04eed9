# SPDX-License-Identifier: Apache-2.0
"""Writes tests/helm/schemas: what the API server of the pinned Kubernetes, and the operators whose
objects the chart may make, accept. Sources are their Go modules, all of them Apache-2.0.

One file holds every Kubernetes type that the chart's kinds reach, each once; a kind is a file that
points there. A custom resource is its CRD's schema. Descriptions are left out, unknown fields are
refused, as `kubectl apply --validate=strict` does.

    build/venv/bin/python tests/helm/make_schemas.py
"""
import json
import pathlib
import re
import shutil

import crds
import yaml

OUT = pathlib.Path(__file__).parent / "schemas"
KUBERNETES = "k8s.io/kubernetes@v1.34.4"
KINDS = {  # kind: (group, version)
    "ConfigMap": ("", "v1"), "Secret": ("", "v1"), "Service": ("", "v1"),
    "ServiceAccount": ("", "v1"), "PersistentVolumeClaim": ("", "v1"), "Pod": ("", "v1"),
    "Deployment": ("apps", "v1"),
    "HorizontalPodAutoscaler": ("autoscaling", "v2"),
    "Ingress": ("networking.k8s.io", "v1"), "NetworkPolicy": ("networking.k8s.io", "v1"),
    "PodDisruptionBudget": ("policy", "v1"),
}
KEPT = {"type", "required", "enum", "minimum", "maximum", "exclusiveMinimum", "pattern", "minLength",
        "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "uniqueItems"}


def compact(schema, closed=True):
    """The schema without what does not validate; closed to unknown fields, but for the parts of
    allOf, anyOf, oneOf and not, which only add conditions."""
    if "$ref" in schema:
        return {"$ref": schema["$ref"].replace("#/definitions/", "#/$defs/")}
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    out = {k: v for k, v in schema.items() if k in KEPT}
    # The API server checks expressions of Go that JSON schema does not have.
    if "pattern" in out:
        try:
            re.compile(out["pattern"])
        except re.error:
            del out["pattern"]
    properties = schema.get("properties")
    if properties is not None:
        out["properties"] = {k: compact(v, closed) for k, v in properties.items()}
        if closed and not schema.get("x-kubernetes-preserve-unknown-fields"):
            out["additionalProperties"] = False
    elif isinstance(schema.get("additionalProperties"), dict):
        out["additionalProperties"] = compact(schema["additionalProperties"], closed)
    if isinstance(schema.get("items"), dict):
        out["items"] = compact(schema["items"], closed)
    for key in ("allOf", "anyOf", "oneOf"):
        if key in schema:
            out[key] = [compact(s, closed=False) for s in schema[key]]
    if "not" in schema:
        out["not"] = compact(schema["not"], closed=False)
    return out


def references(schema):
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix("#/$defs/")
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def write(name, schema):
    (OUT / name).write_text(json.dumps(schema, separators=(",", ":"), sort_keys=True) + "\n")


def file_of(kind, group, version):
    return f"{kind}-{group.split('.')[0] + '-' if group else ''}{version}.json".lower()


def kubernetes():
    spec = json.loads((crds.module(KUBERNETES) / "api/openapi-spec/swagger.json").read_text())
    kind_of = {}
    for name, definition in spec["definitions"].items():
        for gvk in definition.get("x-kubernetes-group-version-kind", []):
            if len(definition["x-kubernetes-group-version-kind"]) == 1:
                kind_of[gvk["kind"], gvk["group"], gvk["version"]] = name
    types, queue = {}, [kind_of[k, g, v] for k, (g, v) in KINDS.items()]
    while queue:
        name = queue.pop()
        if name in types:
            continue
        types[name] = compact(spec["definitions"][name])
        if name.endswith("resource.Quantity"):
            types[name] = {"type": ["string", "number"]}
        queue += references(types[name])
    lines = ",\n".join(f"{json.dumps(k)}:" + json.dumps(types[k], separators=(",", ":"),
                                                        sort_keys=True) for k in sorted(types))
    (OUT / "kubernetes.json").write_text('{"$comment":"' + KUBERNETES + '","$defs":{\n' + lines +
                                         "\n}}\n")
    for kind, (group, version) in KINDS.items():
        name = kind_of[kind, group, version]
        # The API server accepts an object without these; a manifest needs them.
        write(file_of(kind, group, version), {
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
            "required": ["apiVersion", "kind", "metadata"],
            "$ref": f"kubernetes.json#/$defs/{name}"})


def custom():
    for name, path in crds.files():
        crd = yaml.safe_load(path.read_text())["spec"]
        for version in crd["versions"]:
            if not version["served"] or not version["storage"]:
                continue
            schema = compact(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {
                "$ref": "kubernetes.json#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
            schema["required"] = sorted({"apiVersion", "kind", "metadata", *schema.get("required", [])})
            schema |= {"$comment": name, "$schema": "https://json-schema.org/draft/2020-12/schema"}
            write(file_of(crd["names"]["kind"], crd["group"], version["name"]), schema)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    kubernetes()
    custom()


main()
