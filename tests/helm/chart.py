# SPDX-License-Identifier: Apache-2.0
"""Renders helm/continuo for tests, with the tools that scripts/helm_tools.sh builds."""
import copy
import functools
import os
import pathlib
import re
import subprocess

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm/continuo"
TOOLS = ROOT / "build/tools/bin"
BIN = pathlib.Path(os.environ.get("CONTINUO_BIN", ROOT / "build/release/bin"))
EXAMPLES = sorted([*(ROOT / "deploy/examples").glob("*.yaml"),
                   *(ROOT / "tests/helm/values").glob("*.yaml")])
MINIMAL = ["--set", "pools.m.model.path=/models/m"]


def run(tool, *arguments, **keywords):
    return subprocess.run([TOOLS / tool, *map(str, arguments)], text=True, capture_output=True,
                          **keywords)


@functools.cache
def render(*arguments, chart=CHART, release="r", namespace="prod"):
    """The manifests as text; fails with what helm says. The same question gets the same answer, rendered once."""
    done = run("helm", "template", release, chart, "--namespace", namespace, *arguments)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


def without_token(text):
    """Manifests but for the token, which is another one each time."""
    return re.sub(r'"token": "[A-Za-z0-9+/]{64}"', '"token": ""', text)


@functools.cache
def _parsed(text):
    return [o for o in yaml.load_all(text, Loader=yaml.CSafeLoader) if o]


def objects(*arguments, **keywords):
    """The manifests as objects, the caller's to change."""
    return copy.deepcopy(_parsed(render(*arguments, **keywords)))


def pods(rendered):
    """(object, pod spec) of everything that makes pods."""
    return [(o, o["spec"]["template"]["spec"]) for o in rendered if o["kind"] == "Deployment"]


def refusal(*arguments, release="r"):
    """The error of helm for bad values."""
    done = run("helm", "template", release, CHART, *arguments)
    if done.returncode == 0:
        raise AssertionError(f"{arguments} is not refused")
    return done.stderr
