#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the comparison's requests, the bound beside its figures, and its plot."""
import pathlib
import sys
import unittest
import xml.dom.minidom

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from plot import draw, reference  # noqa: E402
from workload import StepCosts, batches, draw_lengths, draw_prompt, static_batches  # noqa: E402


def flat_costs(batch=4, prompt_s=2.0, step_s=0.5):
    """Every step costs the same."""
    return StepCosts(batch, prompt_s, 1, 11, 1 + 10 * step_s, 101, 1 + 100 * step_s)


class LengthsTest(unittest.TestCase):
    def test_lengths_are_within_the_cap_and_of_the_mean(self):
        lengths = draw_lengths(20000, 128, 100000, seed=1)
        self.assertAlmostEqual(sum(lengths) / len(lengths), 128, delta=3)
        capped = draw_lengths(20000, 128, 128, seed=1)
        self.assertEqual((min(capped), max(capped)), (1, 128))
        # Lengths above the cap are drawn again, not cut: the mean of an exponential below 128 is
        # 53.5.
        self.assertAlmostEqual(sum(capped) / len(capped), 53.5, delta=1.5)

    def test_lengths_and_prompts_are_drawn_from_the_seed(self):
        self.assertEqual(draw_lengths(9, 128, 512, 3), draw_lengths(9, 128, 512, 3))
        self.assertNotEqual(draw_lengths(9, 128, 512, 3), draw_lengths(9, 128, 512, 4))
        self.assertEqual(len(draw_prompt(512, 1)), 512)
        self.assertNotEqual(draw_prompt(32, 1), draw_prompt(32, 2))
        one, other = draw_prompt(32, 1, shared=20), draw_prompt(32, 2, shared=20)
        self.assertEqual((len(one), one[:20]), (32, other[:20]))
        self.assertNotEqual(one[20:], other[20:])

    def test_the_last_batch_may_be_smaller(self):
        self.assertEqual(batches([1, 2, 3, 4, 5], 2), [[1, 2], [3, 4], [5]])


    def test_a_batch_takes_what_its_longest_answer_takes(self):
        result = static_batches([1, 3, 2, 2, 4], 2, seconds=[10, 11, 12, 13])
        self.assertEqual(result["seconds"], 12 + 11 + 13 / 2)
        self.assertEqual(result["of_each_batch"], [4 / 12, 4 / 11, 4 / 6.5])
        self.assertAlmostEqual(result["useful_tokens_per_second"], 12 / 29.5)


class BoundTest(unittest.TestCase):
    def test_equal_lengths_gain_nothing(self):
        self.assertAlmostEqual(flat_costs().bound([50] * 16), 1)

    def test_static_pays_for_the_longest_of_each_batch(self):
        costs = flat_costs()
        self.assertAlmostEqual(costs.static_s([1, 1, 1, 101, 1, 1, 1, 1]), 2 + 50 + 2)
        self.assertAlmostEqual(costs.continuous_s([1, 1, 1, 101, 1, 1, 1, 1]), 8 * 0.5 + 12.5)

    def test_long_prompts_gain_less(self):
        lengths = draw_lengths(256, 128, 1536, 1)
        self.assertGreater(flat_costs(16, 0.1).bound(lengths), flat_costs(16, 60).bound(lengths))

    def test_what_is_cached_is_gained_beside(self):
        costs = flat_costs(batch=1, prompt_s=10)
        self.assertAlmostEqual(costs.bound([11, 11]), 1)
        self.assertAlmostEqual(costs.bound([11, 11], unread=0.1), 15 / 6)

    def test_without_prompts_the_bound_is_longest_over_mean(self):
        lengths = [101, 1, 51, 51]
        self.assertAlmostEqual(flat_costs(4, 0).bound(lengths), 100 / 50)

    def test_costs_follow_the_position(self):
        # Token n costs 2 + n / 100.
        def batch_s(tokens):
            return 5 + sum(2 + n / 100 for n in range(2, tokens + 1))

        costs = StepCosts(8, 5, 5, 33, batch_s(33), 257, batch_s(257))
        self.assertAlmostEqual(costs.b, 0.01)
        self.assertAlmostEqual(costs.a, 2)
        self.assertAlmostEqual(costs.prompt_s + costs.steps_s(1000), batch_s(1000))

    def test_noise_makes_no_step_cheaper_with_its_position(self):
        self.assertEqual(StepCosts(8, 0, 0, 33, 32, 257, 200).b, 0)


class PlotTest(unittest.TestCase):
    def cell(self, prompt_tokens, cap, **more):
        rate = {"useful_tokens_per_second": cap / 3}
        return {"prompt_tokens": prompt_tokens, "cap": cap, "requests": 8, "gain": 1.5,
                "static": rate, "continuous": rate, "predicted": rate, **more}

    def test_it_is_xml_with_what_was_measured(self):
        result = {"model": "a<b", "batch": 4, "threads": 2, "cells": [
            self.cell(512, 32), self.cell(512, 128),
            self.cell(32, 32, hugging_face={"useful_tokens_per_second": 2})]}
        text = draw(result)
        xml.dom.minidom.parseString(text)
        self.assertIn("a&lt;b, 8 requests", text)
        self.assertIn("512-token prompts", text)
        self.assertIn("1.50×", text)
        self.assertIn("Hugging Face", text)

    def test_the_pipeline_is_one_where_every_cell_has_it(self):
        pipeline = {"useful_tokens_per_second": 2}
        with_it = self.cell(32, 32, hugging_face=pipeline)
        self.assertEqual(reference([with_it]), "hugging_face")
        self.assertEqual(reference([with_it, self.cell(512, 32)]), "static")
        text = draw({"model": "m", "batch": 4, "threads": 1, "cells": [with_it]})
        self.assertIn("multiple of static batches in a Hugging Face pipeline", text)
        self.assertIn(">5.3×<", text)  # 32 / 3 tokens a second over 2
        self.assertIn(">4×<", text)  # the axis


if __name__ == "__main__":
    unittest.main()
