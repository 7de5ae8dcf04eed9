#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what follows from other files into helm/continuo:

* README.md, between its markers: the table of values, from the comments of values.yaml;
* values.schema.json, $defs gatewayFlags and workerFlags: what `flags` takes, from the --help of the
  programs in $CONTINUO_BIN (default build/release/bin) and from what they say of a bad value, less what
  the chart sets itself;
* values.schema.json, `required`: the values of values.yaml that are not empty by default, which Helm
  drops where they are null.

    scripts/chart.py            writes them
    scripts/chart.py --check    tells what would change, exit code 1
"""
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
CHART = ROOT / "helm/continuo"
BIN = pathlib.Path(os.environ.get("CONTINUO_BIN", ROOT / "build/release/bin"))
OTLP = ("otlp_endpoint", "otlp_tls_ca_file", "otlp_tls_cert_file", "otlp_tls_key_file")
# Flags that follow from other values, or that the chart relies on.
OWNED = {
    "gateway": {"workers", "gateways", "models", "scaler_listen", "scaler_peers", "routing_policy", "listen", "http_listen", "metrics_listen",
                *OTLP, "max_connection_age", "drain_delay", "drain_grace",
                "tls_cert_file", "tls_key_file", "tls_ca_file", "worker_tls_cert_file",
                "worker_tls_key_file", "worker_tls_ca_file", "worker_tls_server_name",
                "worker_tls_names", "token_file", "metrics_token_file",
                "api_keys_file", "help", "version"},
    "worker": {"model", "model_name", "lora_adapter", "lora_root", "worker_name", "device", "listen", "metrics_listen",
               *OTLP, "tls_cert_file", "tls_key_file", "tls_ca_file", "tls_client_names", "token_file",
               "metrics_token_file", "open_inference", "tensor_parallel",
               "weights_cache", "drain_grace", "describe", "calibrate", "help", "version"},
}
# Flags without which a program does not look at the others.
NEEDED = {"gateway": ["--workers=host:1"], "worker": ["--model=folder"]}
TYPES = {
    "INT": {"type": "integer"},
    "NUMBER": {"type": "number"},
    "BOOL": {"type": "boolean"},
    "TEXT": {"type": "string"},
    "ADDRESS": {"type": "string"},
    "BYTES": {"type": ["integer", "string"], "pattern": "^[0-9]+(\\.[0-9]+)?([KMGT]i?B)?$"},
    "DURATION": {"type": "string", "pattern": "^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$|^0$"},
}


BYTES = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def bounds(program, flag):
    """The values that the program accepts for a number or size. Sizes as text are not compared, nor
    numbers beyond the integers that JSON surely keeps."""
    told = subprocess.run([BIN / f"continuo-{program}", *NEEDED[program], f"--{flag}=x"], text=True,
                          capture_output=True).stderr
    match = re.search(r'"x" is not an? (integer|number|size) from (\S+) to ([^\s,]+)', told)
    if not match:
        sys.exit(f"continuo-{program} --{flag}=x does not tell a range: {told}")

    def number(text):
        if match[1] == "size":
            value, unit = re.fullmatch(r"([0-9]+)(\w*)", text).groups()
            return int(value) * BYTES[unit]
        return int(float(text)) if match[1] == "number" else int(text)
    least, most = number(match[2]), number(match[3])
    return {"minimum": least, **({"maximum": most} if most <= 2**53 else {})}


def flags(program):
    """{name: schema} of every flag in --help."""
    text = subprocess.run([BIN / f"continuo-{program}", "--help"], check=True, text=True,
                          capture_output=True).stdout
    result = {}
    for name, kind in re.findall(r"^  --(\w+)(?:\[?=([^\]\s]+)\]?)?", text, re.M):
        result[name] = TYPES.get(kind) or {"enum": kind.split("|")} if kind else {}
        if kind in ("INT", "NUMBER", "BYTES"):
            result[name] = {**result[name], **bounds(program, name)}
    return result


def dump(value, indent=0):
    """JSON in which what fits into a line is in one."""
    flat = json.dumps(value)
    if len(flat) + indent <= 100 or not isinstance(value, (dict, list)):
        return flat
    pad = " " * (indent + 2)
    if isinstance(value, dict):
        items = [f"{pad}{json.dumps(k)}: {dump(v, indent + 2)}" for k, v in value.items()]
    else:
        items = [pad + dump(v, indent + 2) for v in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(items) + "\n" + " " * indent + closing


def require(schema, path=()):
    """Templates read what has a default without asking whether it is there."""
    known = {key[len(path)] for key in DEFAULTS if key[:len(path)] == path and len(key) > len(path)}
    properties = schema["properties"]
    schema.pop("required", None)
    required = sorted(name for name, of in properties.items()
                      if name in known and "null" not in of.get("type", []))
    if required:
        schema["required"] = required
    for name in required:
        if "properties" in properties[name]:
            require(properties[name], (*path, name))


def defaults(text):
    """Paths of the sections, and of the values that are not empty or null by default."""
    for key, value, _ in rows(text):
        path = tuple(key.split("."))
        if value.startswith("{"):
            for inner, of in re.findall(r'(\w+): ("[^"]*"|[^,}]+)', value):
                yield (*path, inner) if of != '""' else path
        else:
            yield path if value not in ('""', "[]", "null") else path[:-1]


def schema_text(old):
    schema = json.loads(old)
    require(schema)
    for program, owned in OWNED.items():
        known = flags(program)
        if not owned <= known.keys():
            sys.exit(f"continuo-{program} has no flag {sorted(owned - known.keys())}")
        schema["$defs"][f"{program}Flags"] = {
            "type": "object", "additionalProperties": False,
            "properties": {k: v for k, v in known.items() if k not in owned}}
    return dump(schema) + "\n"


def rows(text):
    """(key, default, comment) of each value that has a default or a comment of its own."""
    path, comment = [], []
    for line in text.splitlines():
        if not line.strip():
            comment = []
            continue
        if line.lstrip().startswith("#"):
            said = line.strip().removeprefix("#").removeprefix(" ")
            comment.append(said)
            continue
        if line.lstrip().startswith("- "):
            comment = []
            continue  # an item of the list that the key before begins
        match = re.match(r"( *)([\w.-]+):\s*(.*)$", line)
        indent, key, value = len(match[1]), match[2], match[3]
        path = [(i, k) for i, k in path if i < indent] + [(indent, key)]
        said = " ".join(comment).split(" @example")[0]
        comment = []
        if value or said:
            yield ".".join(k for _, k in path), value, said


def table(text):
    lines = ["| value | default | |", "| --- | --- | --- |"]
    in_list = None
    for key, value, said in rows(text):
        # The entries of a list's default are shown with the list.
        if in_list and key.startswith(in_list + "."):
            continue
        in_list = None
        shown = f"`{value}`" if value else ""
        lines.append(f"| `{key}` | {shown} | {said.replace('|', chr(92) + '|')} |")
        if not value and re.search(rf"^ *{re.escape(key.split('.')[-1])}:\n +- ", text, re.M):
            in_list = key
    return "\n".join(lines)


def readme_text(old):
    begin, end = "<!-- values: scripts/chart.py -->\n", "<!-- end of values -->"
    before, rest = old.split(begin)
    after = rest.split(end)[1]
    return before + begin + table((CHART / "values.yaml").read_text()) + "\n" + end + after


def main():
    stale = []
    for name, make in (("README.md", readme_text), ("values.schema.json", schema_text)):
        old = (CHART / name).read_text()
        new = make(old)
        if new != old:
            stale.append(name)
            if "--check" not in sys.argv:
                (CHART / name).write_text(new)
    if stale and "--check" in sys.argv:
        sys.exit(f"helm/continuo: {' and '.join(stale)} is out of date; run scripts/chart.py")


DEFAULTS = set(defaults((CHART / "values.yaml").read_text()))
main()
