#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GGUF file holds the model's weights under llama.cpp's names; the load counts what servers
send, however it is cut."""
import asyncio
import json
import pathlib
import struct
import sys
import tempfile
import threading
import unittest
from xml.etree import ElementTree

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from gguf import write_gguf  # noqa: E402
from guided import KINDS, guided_items, guided_table  # noqa: E402
from load import Plan, drive, percentile  # noqa: E402
from plot import draw  # noqa: E402
from table import table  # noqa: E402

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 1, "max_position_embeddings": 64,
    "hidden_size": 4, "intermediate_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 2, "rms_norm_eps": 1e-6, "rope_theta": 10000, "bos_token_id": 1,
    "eos_token_id": 2, "vocab_size": 3}


def write_model(folder, **config):
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "tokenizer.json").write_text(json.dumps(
        {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 2, "content": "<end>"}]}))
    tensors = {"model.embed_tokens.weight": numpy.arange(12, dtype=numpy.uint16).reshape(3, 4),
               "model.layers.0.self_attn.q_norm.weight":
                   numpy.array([0x3F80, 0x4000], dtype=numpy.uint16)}  # 1 and 2 in bf16
    header, data = {}, b""
    for name, values in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(values.shape),
                        "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


class Reader:
    """Reads a GGUF file, by the text of its specification."""

    KINDS = {4: "<I", 5: "<i", 6: "<f"}

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self):
        size = self.take("<Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            inner, count = self.take("<I"), self.take("<Q")
            return [self.value(inner) for _ in range(count)]
        return self.take(self.KINDS[kind])

    def read(self):
        assert self.data[:4] == b"GGUF"
        self.at = 4
        version, num_tensors, num_entries = self.take("<I"), self.take("<Q"), self.take("<Q")
        assert version == 3
        entries = {}
        for _ in range(num_entries):
            key = self.string()
            entries[key] = self.value(self.take("<I"))
        tensors = {}
        for _ in range(num_tensors):
            name = self.string()
            shape = [self.take("<Q") for _ in range(self.take("<I"))]
            tensors[name] = (shape, self.take("<I"), self.take("<Q"))
        return entries, tensors, self.at + -self.at % 32


class GgufTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_weights_and_figures_are_the_models(self):
        write_model(self.folder)
        write_gguf(self.folder, self.folder / "out.gguf")
        data = (self.folder / "out.gguf").read_bytes()
        entries, tensors, begin = Reader(data).read()
        self.assertEqual(entries["general.architecture"], "qwen3")
        self.assertEqual(entries["qwen3.attention.head_count_kv"], 1)
        self.assertEqual(entries["qwen3.rope.freq_base"], 10000)
        self.assertEqual(entries["tokenizer.ggml.tokens"], ["a", "<|unused_1|>", "<end>"])
        self.assertEqual(entries["tokenizer.ggml.token_type"], [1, 3, 3])
        shape, kind, offset = tensors["token_embd.weight"]
        self.assertEqual((shape, kind, offset % 32), ([4, 3], 30, 0))
        stored = numpy.frombuffer(data, numpy.uint16, 12, begin + offset)
        self.assertEqual(stored.tolist(), list(range(12)))
        shape, kind, offset = tensors["blk.0.attn_q_norm.weight"]
        self.assertEqual((shape, kind, offset % 32), ([2], 0, 0))
        self.assertEqual(numpy.frombuffer(data, numpy.float32, 2, begin + offset).tolist(), [1, 2])

    def test_another_architecture_is_refused(self):
        write_model(self.folder, architectures=["LlamaForCausalLM"])
        with self.assertRaisesRegex(ValueError, "LlamaForCausalLM"):
            write_gguf(self.folder, self.folder / "out.gguf")


class FakeServer:
    """Answers completions over loopback with as many events as asked for, cut into pieces of
    `piece` bytes, chunked or not; `extra` is what it adds to the count."""

    def __init__(self, piece, chunked=True, extra=0, status=200):
        self.piece, self.chunked, self.extra, self.status = piece, chunked, extra, status
        self.requests = []
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self._run, args=(ready,), daemon=True).start()
        ready.wait(10)

    def _run(self, ready):
        async def serve():
            server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
            host, port = server.sockets[0].getsockname()
            self.address = f"{host}:{port}"
            ready.set()
            await server.serve_forever()

        self.loop.run_until_complete(serve())

    async def _answer(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.split("content-length: ")[1].split("\r\n")[0])
        request = json.loads(await reader.readexactly(size))
        self.requests.append(request)
        count = request["max_tokens"]
        events = [{"choices": [{"text": "x"}]}] * count
        events.append({"choices": [], "usage": {"completion_tokens": count + self.extra}})
        body = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events)
        body += b"data: [DONE]\n\n"
        writer.write(f"HTTP/1.1 {self.status} X\r\n".encode())
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n" if self.chunked else b"\r\n")
        for i in range(0, len(body), self.piece):
            piece = body[i:i + self.piece]
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if self.chunked else piece)
            await writer.drain()
        if self.chunked:
            writer.write(b"0\r\n\r\n")
        writer.close()


class LoadTest(unittest.TestCase):
    def test_counts_however_the_body_is_cut(self):
        plan = Plan(6, 5, 4, 1, 100)
        for piece, chunked in ((1, True), (7, True), (10000, True), (13, False)):
            server = FakeServer(piece, chunked)
            report = drive(server.address, "m", plan.items, 2)
            self.assertEqual(report["requests"], 6)
            self.assertEqual(report["output_tokens"], sum(length for _, length in plan.items))
            self.assertCountEqual([(r["prompt"], r["max_tokens"]) for r in server.requests],
                                  [(p, n) for p, n in plan.items])
            self.assertIsNotNone(report["time_to_first_token_s"]["p50"])

    def test_members_are_sent(self):
        server = FakeServer(100)
        drive(server.address, "m", [("a", 3)], 1, {"structured_outputs": {"regex": "a*"}})
        self.assertEqual(server.requests[0]["structured_outputs"], {"regex": "a*"})

    def test_an_answer_of_another_length_or_a_refusal_fails(self):
        for server in (FakeServer(100, extra=1), FakeServer(100, status=500)):
            with self.assertRaises(ExceptionGroup):
                drive(server.address, "m", Plan(2, 5, 4, 1, 100).items, 1)

    def test_plans_are_drawn_from_the_seed(self):
        self.assertEqual(Plan(3, 5, 4, 1, 100).items, Plan(3, 5, 4, 1, 100).items)
        self.assertNotEqual(Plan(3, 5, 4, 1, 100).items, Plan(3, 5, 4, 2, 100).items)
        self.assertLess(max(max(p) for p, _ in Plan(50, 50, 4, 1, 100).items), 100)

    def test_percentiles_are_of_the_values(self):
        self.assertEqual(percentile([3, 1, 2], 0.5), 2)
        self.assertEqual(percentile(range(101), 0.99), 99)
        self.assertIsNone(percentile([], 0.5))


class TableTest(unittest.TestCase):
    def test_answers_of_one_token_have_a_line_too(self):
        figures = {"output_tokens_per_second": 2, "output_tokens_per_cpu_second": 1,
                   "time_to_first_token_s": {"p50": 0.5, "p99": 0.75},
                   "inter_token_s": {"p50": None, "p99": None}}
        lines = table({"cells": {"1": {"continuo": [figures]}}}).splitlines()
        self.assertEqual(lines[1].split(),
                         ["continuo", "1", "2.0", "1.00", "1.0", "1.00", "500.0", "750.0", "-", "-"])


class GuidedTest(unittest.TestCase):
    def test_guided_rates_are_shares_of_the_free_ones(self):
        rounds = lambda *rates: [{"output_tokens_per_second": rate, "inter_token_s": {"p50": 0.01}}
                                 for rate in rates]
        lines = guided_table({"16": {"vllm": {"free": rounds(50, 100, 60), "schema": rounds(15, 20, 10)}}})
        self.assertEqual([line.split()[:5] for line in lines.splitlines()[1:]],
                         [["vllm", "16", "free", "60.0", "1.00"], ["vllm", "16", "schema", "15.0", "0.25"]])

    def test_no_answer_to_them_is_short(self):
        for count, item in enumerate(guided_items(40, 64), 1):
            self.assertEqual(item[1], 64)
        self.assertEqual(count, 40)
        self.assertGreaterEqual(KINDS["schema"]["structured_outputs"]["json"]["minItems"], 1000)


class PlotTest(unittest.TestCase):
    def test_a_bar_for_each_server_as_high_as_its_rate(self):
        def cell(**rates):
            return {name: [{"output_tokens_per_second": rate} for rate in rounds]
                    for name, rounds in rates.items()}
        results = [{"model": "m", "threads": 2, "prompt_tokens": 128, "weights": "bf16",
                    "cells": {"1": cell(continuo=[40], vllm=[20]),
                              "16": cell(continuo=[90, 100, 300], vllm=[50])}},
                   {"weights": "int8", "cells": {"1": cell(continuo=[80])}}]
        root = ElementTree.fromstring(draw(results))
        bars = [float(r.get("height")) for r in root.iter("{http://www.w3.org/2000/svg}rect")
                if r.get("y") and r.get("width") == "40"]
        self.assertEqual([round(b / bars[0], 2) for b in bars], [1, 0.5, 2.5, 1.25, 2])
        texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
        for text in ("bf16, 1 stream", "bf16, 16 streams", "int8, 1 stream", "100"):
            self.assertIn(text, texts)


if __name__ == "__main__":
    unittest.main()
