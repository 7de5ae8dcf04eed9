#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Perplexities and ratios are those of their definition; a folder in bf16 has the nearest values; a GGUF file of another
type has the values of that type; an answer that differs is told with the gap."""
import json
import math
import pathlib
import struct
import sys
import tempfile
import unittest

import gguf
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gguf_types  # noqa: E402
import greedy  # noqa: E402
import perplexity  # noqa: E402


class AccuracyTest(unittest.TestCase):
    def test_a_uniform_model_has_the_perplexity_of_its_vocabulary(self):
        result = {"counts": [3, 1], "sums": [3 * math.log(50)] * 4, "halves": [math.log(50)] * 4}
        self.assertAlmostEqual(perplexity.perplexity(result), 50)
        self.assertAlmostEqual(perplexity.perplexity(result, half=True), 50)

    def test_a_ratio_is_of_the_chunks_that_both_have_and_lies_in_its_bounds(self):
        base = {"counts": [10, 5], "sums": [20.0, 30.0, 25.0, 1000.0]}
        other = {"counts": [10, 5], "sums": [21.0, 30.0, 26.0]}
        middle, low, high = perplexity.ratio(other, base)
        self.assertAlmostEqual(middle, math.exp(2 / 30))
        self.assertLessEqual(low, middle)
        self.assertLessEqual(middle, high)
        self.assertEqual(perplexity.ratio(base, base), [1, 1, 1])

    def test_a_folder_in_bf16_has_the_nearest_values_ties_to_even(self):
        values = numpy.array([1, 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-7, 0.1], "<f4")
        with tempfile.TemporaryDirectory() as folder:
            model, out = pathlib.Path(folder) / "model", pathlib.Path(folder) / "out"
            model.mkdir()
            header = json.dumps({"w": {"dtype": "F32", "shape": [5], "data_offsets": [0, 20]}}).encode()
            (model / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + values.tobytes())
            for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
                (model / name).write_text("{}")
            data = (perplexity.bf16_folder(model, out) / "model.safetensors").read_bytes()
            got = numpy.frombuffer(data[-10:], "<u2").astype("<u4") << 16
            self.assertEqual(got.view("<f4").tolist(), [1, 1, 1 + 2**-6, -1 - 2**-7, 0.10009765625])

    def test_a_file_of_another_type_has_its_values_and_the_metadata(self):
        draw = numpy.random.default_rng(1)
        matrix, gain = draw.normal(size=(4, 64)).astype("float32"), draw.normal(size=64).astype("float32")
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "tiny.F32.gguf"
            writer = gguf.GGUFWriter(source, "llama")
            writer.add_token_list(["a", "b"])
            writer.add_tensor("token_embd.weight", matrix)
            writer.add_tensor("output_norm.weight", gain)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            out = pathlib.Path(folder) / "out.gguf"
            gguf_types.by_package(source, out, "Q8_0")
            reader = gguf.GGUFReader(out)
            self.assertEqual(reader.get_field("tokenizer.ggml.tokens").contents(), ["a", "b"])
            tensors = {tensor.name: tensor for tensor in reader.tensors}
            self.assertEqual(tensors["token_embd.weight"].tensor_type.name, "Q8_0")
            want = gguf.quants.quantize(matrix, gguf.GGMLQuantizationType.Q8_0)
            self.assertTrue((tensors["token_embd.weight"].data == want).all())
            self.assertTrue((tensors["output_norm.weight"].data == gain).all())

    def test_an_answer_that_differs_is_told_with_the_gap(self):
        theirs = [{"ids": [1, 2, 3], "gaps": [5, 0.25, 5]}, {"ids": [4], "gaps": [5]}]
        self.assertEqual(greedy.differences([[1, 2, 3], [4]], theirs), [])
        lines = greedy.differences([[1, 7, 3], [4, 5]], theirs)
        self.assertIn("from token 1 on", lines[0])
        self.assertIn("gap 0.25", lines[0])
        self.assertIn("past the end", lines[1])


if __name__ == "__main__":
    unittest.main()
