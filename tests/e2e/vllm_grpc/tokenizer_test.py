#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GetTokenizer: what a stock client makes of the archive are the worker's own tokens, of a folder and of a GGUF file."""
import hashlib
import io
import pathlib
import shutil
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gguf"))
from subscriber import Engine, common_pb2, fleet, grpc  # noqa: E402

import tokenizers  # noqa: E402

TEXTS = ("Mira lives in Oslo and plays the violin.", "Ünïcödé 😀 and\n\n  spaces", "<|user|>")


def get(engine):
    """The archive, whose digest is right."""
    parts = list(engine.stub.GetTokenizer(common_pb2.GetTokenizerRequest()))
    assert all(not part.sha256 for part in parts[:-1])
    data = b"".join(part.data for part in parts)
    assert hashlib.sha256(data).hexdigest() == parts[-1].sha256
    return zipfile.ZipFile(io.BytesIO(data))


class TokenizerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="continuo-tokenizer-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, model):
        worker = fleet.start_worker(model, "--threads=1", "--kv_cache_memory=16MiB")
        self.addCleanup(worker.kill)
        engine = Engine(worker.address)
        engine.client.wait_for_model()
        return engine

    def check_tokens(self, engine, archive):
        tokenizer = tokenizers.Tokenizer.from_str(archive.read("tokenizer.json").decode())
        for text in TEXTS:
            with self.subTest(text):
                self.assertEqual(tokenizer.encode(text).ids, engine.tokens(text))

    def test_a_folder_gives_its_files(self):
        model = self.folder / "model"
        shutil.copytree(fleet.DEMO_MODEL, model)
        engine = self.start(model)
        archive = get(engine)
        self.assertIsNone(archive.testzip())
        self.assertEqual(archive.namelist(), ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                              "config.json", "generation_config.json"])
        for name in archive.namelist():
            self.assertEqual(archive.read(name), (model / name).read_bytes())
        self.check_tokens(engine, archive)
        # It is kept, so that it is there also where the files are gone.
        shutil.rmtree(model)
        self.assertEqual(get(engine).namelist(), archive.namelist())

    def test_a_gguf_file_gives_the_files_that_a_folder_would_have(self):
        import gguf_models
        engine = self.start(gguf_models.write_model(self.folder, "llama")[1])
        archive = get(engine)
        self.assertEqual(archive.namelist(), ["tokenizer.json", "tokenizer_config.json"])
        self.check_tokens(engine, archive)

    def test_a_folder_that_was_changed_gives_nothing(self):
        model = self.folder / "model"
        shutil.copytree(fleet.DEMO_MODEL, model)
        engine = self.start(model)
        (model / "tokenizer_config.json").write_text("{}")
        with self.assertRaises(grpc.RpcError) as raised:
            get(engine)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.FAILED_PRECONDITION)
        self.assertIn("tokenizer_config.json was changed", raised.exception.details())


if __name__ == "__main__":
    unittest.main(verbosity=2)
