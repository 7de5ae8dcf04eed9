#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""continuo-worker --describe: what it tells of models in each kind of place, and its exit code."""
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

E2E = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(E2E), str(E2E / "gguf")]
import fleet  # noqa: E402
import gguf_models  # noqa: E402


def describe(model, *flags, form="json"):
    """(exit code, what was printed)"""
    done = subprocess.run([fleet.BIN / "continuo-worker", f"--describe={form}", f"--model={model}", *flags],
                          capture_output=True, text=True, timeout=60)
    return done.returncode, json.loads(done.stdout) if form == "json" else done.stdout


class DescribeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_the_demo_model(self):
        code, told = describe(fleet.DEMO_MODEL)
        self.assertEqual((code, told["would_run"], told["problems"]), (0, True, []))
        self.assertEqual(told["model"]["architecture"], "LlamaForCausalLM")
        self.assertEqual(told["text"]["end_tokens"], [{"id": 1, "text": "<|end|>"}])
        self.assertEqual(told["text"]["tool_format"], "hermes")
        # 4 layers of 4 heads of keys and of values, of 32 elements in bf16.
        self.assertEqual(told["memory"]["kv_per_token"], 4 * 2 * 4 * 32 * 2)
        code, text = describe(fleet.DEMO_MODEL, "--max_context_tokens=512", form="text")
        self.assertEqual(code, 0)
        self.assertIn("1 MiB for a context of 512 tokens", text)
        self.assertRegex(text, r"would run +yes\n$")

    def test_memory_that_is_not_there_is_a_problem(self):
        code, told = describe(fleet.DEMO_MODEL, "--kv_cache_memory=100TiB")
        self.assertEqual((code, told["would_run"]), (1, False))
        self.assertEqual(told["problems"][0]["code"], "RESOURCE_EXHAUSTED")
        self.assertIsNotNone(told["memory"])

    def test_a_hubs_cache(self):
        cache = self.folder / "models--org--tiny"
        shutil.copytree(fleet.DEMO_MODEL, cache / "snapshots/abc")
        code, told = describe(cache)
        self.assertEqual((code, told["name"]), (0, "org/tiny"))
        shutil.rmtree(cache / "snapshots/abc")
        code, told = describe(cache)
        self.assertEqual(code, 1)
        self.assertIn("has no snapshot", told["problems"][0]["message"])

    def test_gguf_files_and_an_ollama_store(self):
        _, file = gguf_models.write_model(self.folder, "qwen3")
        code, told = describe(file)
        self.assertEqual((code, told["container"], told["text"]["tokenizer"]), (0, "GGUF", "GGUF metadata"))
        self.assertEqual(told["model"]["architecture"], "Qwen3ForCausalLM")
        self.assertGreater(len(told["stored"]), 1)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        store = self.folder / "store"
        (store / "blobs").mkdir(parents=True)
        shutil.copy(file, store / "blobs" / f"sha256-{digest}")
        manifest = store / "manifests/registry.ollama.ai/library/tiny/1b"
        manifest.parent.mkdir(parents=True)
        manifest.write_text(json.dumps({"layers": [{"mediaType": "application/vnd.ollama.image.model",
                                                    "digest": f"sha256:{digest}"}]}))
        code, told = describe(manifest)
        self.assertEqual((code, told["name"], told["container"]), (0, "tiny:1b", "GGUF"))

    def test_missing_parts_are_named(self):
        _, file = gguf_models.write_model(self.folder, "llama")
        cut = self.folder / "cut.gguf"
        cut.write_bytes(file.read_bytes()[:-1000])
        code, told = describe(cut)
        self.assertEqual((code, told["would_run"]), (1, False))
        model = self.folder / "model"
        shutil.copytree(fleet.DEMO_MODEL, model)
        (model / "tokenizer.json").unlink()
        code, told = describe(model)
        self.assertEqual(code, 1)
        self.assertIn("tokenizer.json", told["problems"][0]["message"])
        self.assertIsNotNone(told["memory"])

    def test_the_registry_needs_no_model(self):
        done = subprocess.run([fleet.BIN / "continuo-worker", "--describe=registry"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0)
        self.assertIn("LlamaForCausalLM", [f["architecture"] for f in json.loads(done.stdout)["families"]])
        done = subprocess.run([fleet.BIN / "continuo-worker", "--describe"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--model is needed", done.stderr)


if __name__ == "__main__":
    unittest.main()
