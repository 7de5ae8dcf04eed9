# SPDX-License-Identifier: Apache-2.0
"""helm-unittest's suites try every value of the chart, and would notice one that does nothing."""
import copy
import json
import pathlib
import re
import shutil
import tempfile
import unittest
import xml.etree.ElementTree

import chart
import yaml


def leaves(value, path=()):
    """Paths of the values that are no maps, or empty ones."""
    if isinstance(value, dict) and value:
        for key, of in value.items():
            yield from leaves(of, (*path, key))
    elif path:
        yield path


def without(value, path):
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return value


def known(schema, path=""):
    """Names of all values in the schema."""
    for key, value in schema.get("properties", {}).items():
        here = f"{path}.{key}" if path else key
        if "properties" in value:
            yield from known(value, here)
        else:
            yield here


class SuitesTest(unittest.TestCase):
    def setUp(self):
        schema = json.loads((chart.CHART / "values.schema.json").read_text())
        self.known = set(known(schema)) - {"global", "enabled"}  # read by Helm
        self.of_models = set(known(schema["$defs"]["pool"]["properties"]["model"], "worker.model"))

    def test_every_value_is_noticed_by_a_suite(self):
        """Each test once more for each of the values that it sets, without that one: a value is noticed
        where such a test fails."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder) / "continuo"
            shutil.copytree(chart.CHART, folder)
            value_of = {}
            for suite in (folder / "tests").glob("*_test.yaml"):
                told = yaml.safe_load(suite.read_text())
                tests = []
                for test in told["tests"]:
                    for path in leaves(test.get("set", {})):
                        name = f"without {len(value_of)}"
                        # A pool has the values of `worker`.
                        value_of[name] = re.sub(r"^pools\.[a-z]+\.", "worker.", ".".join(path))
                        tests.append({**test, "it": name, "set": without(test["set"], path)})
                suite.write_text(yaml.safe_dump({**told, "tests": tests}, sort_keys=False))
            done = chart.run("helm-unittest", "--strict", "--output-type", "JUnit", "--output-file",
                             folder / "report.xml", folder)
            report = xml.etree.ElementTree.parse(folder / "report.xml")
        cases = {c.get("name"): len(c) > 0 for c in report.iter("testcase")}
        self.assertEqual(cases.keys(), value_of.keys(), done.stdout[-2000:])
        noticed = {value_of[name] for name, failed in cases.items() if failed}
        self.assertEqual([], sorted(set(value_of.values()) - noticed), "tried, and it does not matter")
        self.assertEqual([], [k for k in sorted(self.known - {"pools"} | self.of_models) if not any(
            n == k or n.startswith(k + ".") for n in noticed)], "never tried")

    def test_every_value_is_in_the_schema_and_the_other_way_round(self):
        values = yaml.safe_load((chart.CHART / "values.yaml").read_text())
        # Maps whose keys the user chooses are not followed, as in the schema.
        told = {next((k for k in self.known if leaf.startswith(k + ".")), leaf)
                for leaf in map(".".join, leaves(values))}
        self.assertEqual(told, self.known)


if __name__ == "__main__":
    unittest.main()
