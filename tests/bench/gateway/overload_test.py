#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests which results overload.py counts as failures."""
import contextlib
import copy
import io
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import overload  # noqa: E402


def part(good_tokens=100, first_token_s=0.1):
    return {"requests": {"sent": 20, "ok": 10, "rejected": 0, "failed": 0,
                         "requests_per_second": 5},
            "throughput": {"good_tokens_per_second": good_tokens},
            "latency_seconds": {"rejection": {"p99": 0.001},
                                "time_to_first_token": {"p50": first_token_s,
                                                        "p95": first_token_s}}}


class OverloadTest(unittest.TestCase):
    def setUp(self):
        self.parts = {"peaks": [part(), part()], "peak": 100, "rate": 5, "overload": part(97, 4),
                      "memory": (100, 101), "alone": part(), "beside": part(first_token_s=0.14),
                      "flood": part()}

    def misses(self):
        with contextlib.redirect_stdout(io.StringIO()):
            return overload.report(**copy.deepcopy(self.parts))

    def test_goals_reached_or_missed_by_noise_are_no_failure(self):
        self.assertEqual(self.misses(), [])
        self.parts.update(overload=part(85, 4), memory=(100, 108), beside=part(first_token_s=0.2))
        self.assertEqual(self.misses(), [])

    def test_request_that_was_neither_answered_nor_rejected_is_a_failure(self):
        for name in ("overload", "alone", "beside", "flood"):
            with self.subTest(name):
                self.parts[name]["requests"].update(failed=3, sent=100)
                self.assertIn("3 of 100 requests of", self.misses()[0])
                self.parts[name]["requests"]["failed"] = 1
                self.assertEqual(len(self.misses()), name == "beside")
                self.parts[name]["requests"]["failed"] = 0

    def test_part_without_answers_is_a_failure(self):
        for name, empty in (("overload", self.parts["overload"]), ("flood", self.parts["flood"]),
                            ("peak", self.parts["peaks"][0]),
                            ("second peak", self.parts["peaks"][1]),
                            ("light tenant alone", self.parts["alone"]),
                            ("light tenant beside the flood", self.parts["beside"])):
            with self.subTest(name):
                empty["requests"]["ok"] = 0
                empty["latency_seconds"]["time_to_first_token"]["p50"] = 0
                self.assertRegex(self.misses()[0], f"nothing was answered in (the )?{name}")
                empty["requests"]["ok"] = 10

    def test_figure_past_its_limit_is_a_failure(self):
        for change in ({"overload": part(79, 4)}, {"memory": (100, 111)},
                       {"beside": part(first_token_s=0.26)}, {"overload": part(97, 0.01)}):
            with self.subTest(change):
                before = dict(self.parts)
                self.parts.update(change)
                self.assertEqual(len(self.misses()), 1)
                self.parts = before

    def test_rejected_request_of_the_light_tenant_is_a_failure(self):
        self.parts["beside"]["requests"]["rejected"] = 1
        self.assertEqual(len(self.misses()), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
