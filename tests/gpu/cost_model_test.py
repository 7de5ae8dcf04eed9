#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cost_model.py against sizes and costs counted by hand."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import cost_model
from cost_model import DEVICES, MODELS, Device, Kernel, bound, seconds, step

HERE = pathlib.Path(__file__).resolve().parent
IDEAL = {kind: 1.0 for kind in cost_model.SHARES}
SLOW = Device("slow", 1.0, 1.0, 2.0)  # 1 GB/s, so that latencies do not count


def of(kernels, name):
    return [k for k in kernels if k.name == name]


class CostModelTest(unittest.TestCase):
    def test_weights_are_those_of_the_public_models(self):
        # Parameters without the input embedding, from the models' cards: 8.03, 70.6 and 1.24 billion with
        # it, of which the 1B shares it with the head.
        for name, billions in (("llama-3.1-8b", 8.03 - 0.525), ("llama-3.1-70b", 70.55 - 1.05), ("llama-3.2-1b", 1.236)):
            kernels = [k for k in step(MODELS[name], [(1, 1)]) if k.kind in ("small_m", "large_m")]
            self.assertAlmostEqual(sum(k.bytes for k in kernels) / 2e9, billions, delta=0.01 * billions, msg=name)
            self.assertAlmostEqual(sum(k.flops for k in kernels) / 2e9, billions, delta=0.01 * billions, msg=name)

    def test_attention_reads_every_position_once(self):
        kernels = step(MODELS["llama-3.1-8b"], [(1, 1000), (1, 500)])
        reads = of(kernels, "attention of decodes")
        self.assertEqual(len(reads), 32)
        # 8 KV heads of 128 in bf16, keys and values; queries and results of 2 rows.
        self.assertEqual(reads[0].bytes, 1500 * 2 * 8 * 128 * 2 + 2 * 32 * 128 * 4)
        eight = of(step(MODELS["llama-3.1-8b"], [(1, 1500)], kv="fp8"), "attention of decodes")[0]
        self.assertEqual(eight.bytes, 1500 * 2 * 8 * (128 + 4) + 32 * 128 * 4)

    def test_a_prompt_sees_half_of_itself(self):
        whole = of(step(MODELS["qwen3-0.6b"], [(512, 512)]), "attention of prompts")[0]
        self.assertEqual(whole.flops, 4 * 512 * 256 * 16 * 128)
        rest = of(step(MODELS["qwen3-0.6b"], [(512, 1024)]), "attention of prompts")[0]
        self.assertEqual(rest.flops, 4 * 512 * 768 * 16 * 128)

    def test_a_kernel_takes_the_longer_of_bytes_and_operations(self):
        self.assertEqual(Kernel("", "small_m", 2e9).cost(SLOW, IDEAL), 2.0)
        self.assertEqual(Kernel("", "small_m", 2e9, 3e12).cost(SLOW, IDEAL), 3.0)
        self.assertEqual(Kernel("", "small_m", 2e9, 6e12, "fp8").cost(SLOW, IDEAL), 3.0)
        self.assertEqual(Kernel("", "small_m", 2e9).cost(SLOW, {"small_m": 0.5}), 4.0)
        self.assertEqual(Kernel("", "small_m", 1).cost(SLOW, IDEAL), cost_model.LATENCY * 1e-6)

    def test_every_kernel_has_a_share(self):
        for model in MODELS.values():
            for sequences in ([(1, 9)], [(1, 9)] * 300, [(700, 700)], [(1, 9), (300, 900)]):
                for options in ({}, {"weights": "fp8", "kv": "fp8"}, {"weights": "int4", "kv": "int8"}, {"ranks": 4}):
                    kernels = step(model, sequences, **options)
                    for device in DEVICES.values():
                        self.assertGreater(seconds(kernels, device), bound(kernels, device))

    def test_ranks_share_the_weights_and_add_reductions(self):
        one, eight = (step(MODELS["llama-3.1-70b"], [(1, 100)], ranks=n) for n in (1, 8))
        self.assertAlmostEqual(sum(k.bytes for k in one if k.kind == "small_m") / sum(k.bytes for k in eight if k.kind == "small_m"),
                               8, delta=0.1)
        self.assertEqual((len(of(one, "all-reduce")), len(of(eight, "all-reduce"))), (0, 160))

    def test_small_steps_touch_few_experts(self):
        model = MODELS["qwen3-30b-a3b"]
        matrices = 3 * 768 * 2048 * 2

        def touched(rows):
            kernels = step(model, [(1, 9)] * rows)
            return (of(kernels, "gate, up of experts")[0].bytes + of(kernels, "down of experts")[0].bytes) / matrices
        self.assertAlmostEqual(touched(1), 8, delta=0.1)
        self.assertTrue(124 < touched(64) < 128, touched(64))

    def test_serving_mixes_prompts_into_steps(self):
        device, model = DEVICES["NVIDIA H200"], MODELS["llama-3.1-8b"]
        rate, most = cost_model.served(model, device, 1000, 1000, 512)
        decodes = 512 / seconds(step(model, [(1, 1500)] * 512), device)
        self.assertLess(rate, decodes)
        self.assertLess(rate, most)
        self.assertGreater(cost_model.served(model, device, 128, 1000, 512)[0], rate)

    def test_results_are_compared(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "ops_bench.json").write_text(
                '{"device": "NVIDIA H200"}\n{"op": "read of 4 GiB", "group": "ceilings", "gb_per_s": 4000}\n')
            kernels = step(MODELS["llama-3.1-8b"], [(1, 700)] * 4)
            twice = 2 * seconds(kernels, Device("", 4000, 790, 1150))
            (folder / "goals-step-llama-3.1-8b.json").write_text(json.dumps(
                {"model": "models/llama-3.1-8b", "weights": "bf16", "kv": "bf16", "command": "step_bench --context=700",
                 "steps": [{"name": "decode/4", "seconds": twice}]}))
            (folder / "goals-8b-fp8-1000-1000.json").write_text(json.dumps(
                {"config": {"prompt_tokens": "1000", "output_tokens": "1000", "concurrency": 64}, "steady": {"output_tokens_per_second": 100.0}}))
            told = subprocess.run([sys.executable, HERE / "cost_model.py", folder], check=True, text=True,
                                  capture_output=True).stdout
        self.assertRegex(told, r"decode/4 +[\d.]+ +[\d.]+ +2\.00")
        self.assertRegex(told, r"64 streams: 100 tokens/s, predicted \d+, ratio \d+\.\d\d")
        self.assertIn("4000 GB/s", told)

    def test_tables_have_every_prediction(self):
        told = subprocess.run([sys.executable, HERE / "cost_model.py"], check=True, text=True, capture_output=True).stdout
        self.assertEqual(len(told.splitlines()), 2 + len(cost_model.predictions(DEVICES["NVIDIA H200"])))


if __name__ == "__main__":
    unittest.main()
