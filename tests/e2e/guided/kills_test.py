#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A worker that dies at any token of a guided or tool-calling stream changes nothing of it: text,
thoughts, calls with their ids, log-probabilities and usage are those of an undisturbed run.

    kills_test.py [--streams=N] [--alone=N] [--kills=N]
        N streams; of so many each place is cut alone, and not only all of them one after the other;
        so many real deaths
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import shutil
import sys
import tempfile
import threading
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import streams  # noqa: E402
from streams import fleet, pb  # noqa: E402
from cutter import Cutter, Door  # noqa: E402

OPTIONS = argparse.Namespace(streams=100, alone=3, kills=2)
# They differ in much that no answer may depend on.
PLAIN = ("--threads=1", "--kv_blocks=1200", "--speculation=off")
OTHER = ("--threads=1", "--kv_blocks=1200", "--block_size=8", "--speculation=off", "--max_batch_tokens=64",
         "--max_prefill_chunk=7")
AT_ONCE = 16


def in_parallel(function, items, number=AT_ONCE):
    with concurrent.futures.ThreadPoolExecutor(number) as pool:
        return list(pool.map(function, items))


class KillsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="continuo-kills-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.model = streams.write_model(cls.folder)
        cls.requests = [streams.make_request(i) for i in range(OPTIONS.streams)]
        worker = fleet.start_worker(cls.model, *PLAIN)
        cls.addClassCleanup(worker.kill)
        client = fleet.Client(worker.address)
        client.wait_for_model()
        # Every stream alone.
        answers = [client.generate(request) for request in cls.requests]
        cls.expected = [streams.said(answer) for answer in answers]
        cls.lengths = [streams.num_tokens(answer) for answer in answers]
        # The tokens of a step come together.
        cls.places = [length // max(1, request.sampling.num_sequences)
                      for length, request in zip(cls.lengths, cls.requests)]
        cls.plain_worker = worker

    def fleet_behind_doors(self):
        """A gateway before two workers whose streams are cut as the cutter says."""
        cutter = Cutter()
        other = fleet.start_worker(self.model, *OTHER)
        self.addCleanup(other.kill)
        doors = [Door(worker, cutter) for worker in (self.plain_worker, other)]
        for door in doors:
            self.addCleanup(door.stop)
        gateway = fleet.start_gateway([door.address for door in doors])
        self.addCleanup(gateway.kill)
        client = fleet.Client(gateway.address)
        client.wait_for_model(2)
        return gateway, client, cutter

    def check(self, i, answer, what):
        said = streams.said(answer)
        self.assertEqual(said, self.expected[i], (self.requests[i].request_id, what))
        self.assertFalse(answer.summary.inexact)

    def test_the_streams_are_what_they_are_meant_to_be(self):
        """Each kind makes what it is about, in most of its streams."""
        counts = {kind: [0, 0] for kind in streams.KINDS}
        for i, said in enumerate(self.expected):
            kind = streams.KINDS[i % len(streams.KINDS)]
            made = counts[kind]
            made[1] += 1
            if kind.startswith("thoughts"):
                thought = said["reasoning"].get(0, "")
                said_more = said["calls"] if kind == "thoughts_call" else said["text"].get(0)
                made[0] += bool(thought) and bool(said_more)
            elif kind in ("required", "named", "auto"):
                made[0] += bool(said["calls"])
            elif kind == "strict":
                made[0] += bool(said["calls"]) or bool(said["text"].get(0))
            else:
                made[0] += bool(said["text"].get(0))
        print(f"{sum(self.lengths)} tokens; {counts}", flush=True)
        for kind, (made, all_of_it) in counts.items():
            self.assertGreaterEqual(made, 0.6 * all_of_it, kind)

    def test_a_stream_that_is_cut_behind_every_token(self):
        """One after the other: no worker brings more than a token."""
        _, client, cutter = self.fleet_behind_doors()
        cutter.cut_every(1)
        answers = in_parallel(client.generate, self.requests)
        places = 0
        for i, answer in enumerate(answers):
            cuts = set(cutter.take_cuts(self.requests[i].request_id))
            self.check(i, answer, "cut behind every token")
            places += len(cuts)
        print(f"{len(answers)} streams, cut at {places} of {sum(self.places)} places", flush=True)
        # Two tokens come together where one is delivered while the other is made: of one stream perhaps
        # all, on a busy machine, but not of all streams.
        self.assertGreater(places, 0.2 * sum(self.places))

    def test_a_worker_that_dies_at_any_token(self):
        """Each place alone: another worker brings all the rest."""
        _, client, cutter = self.fleet_behind_doors()

        def run(i):
            """The places at which stream `i` was cut."""
            request, cuts = self.requests[i], set()
            # Again where another token came along, as happens on a busy machine.
            for after in [*range(self.lengths[i])] * 12:
                if len(cuts) >= 0.95 * self.places[i]:
                    break
                if after in cuts:
                    continue
                cutter.cut_first(request.request_id, after)
                answer = client.generate(request)
                here = cutter.take_cuts(request.request_id)
                self.check(i, answer, f"cut after {here} tokens")
                cuts.update(here)
            return len(cuts)
        # Each of so few streams is of another kind.
        chosen = random.Random(1).sample(range(OPTIONS.streams), OPTIONS.alone)
        if OPTIONS.alone < len(streams.KINDS):
            chosen = range(0, len(streams.KINDS), len(streams.KINDS) // OPTIONS.alone)
        places = in_parallel(run, chosen)
        length = sum(self.places[i] for i in chosen)
        print(f"{len(places)} streams, cut alone at {sum(places)} of {length} places", flush=True)
        self.assertGreaterEqual(sum(places), 0.9 * length)

    def test_http_says_the_same_whole_and_streamed(self):
        gateway, _, cutter = self.fleet_behind_doors()
        bodies = [http_body(request) for request in self.requests[:len(streams.KINDS)]]
        expected = [ask(gateway, body) for body in bodies]
        cutter.cut_every(3)
        for stream in (False, True):
            answers = in_parallel(lambda body: ask(gateway, body, stream), bodies)
            for body, answer, whole in zip(bodies, answers, expected):
                self.assertEqual(answer, whole, (body, stream))

    def test_real_deaths(self):
        """The one worker is killed when its streams have so many tokens; its successor takes over."""
        port = fleet.free_port()
        start = lambda flags: fleet.start_worker(self.model, *flags, port=port)
        worker = start(PLAIN)
        gateway = fleet.start_gateway(f"127.0.0.1:{port}")
        self.addCleanup(gateway.kill)
        client = fleet.Client(gateway.address)
        client.wait_for_model()
        rng, changed = random.Random(2), threading.Condition()
        cut = 0
        for kill in range(OPTIONS.kills):
            chosen = rng.sample(range(OPTIONS.streams), min(25, OPTIONS.streams))
            total = sum(self.lengths[i] for i in chosen)
            goal, seen = rng.randrange(1, total // 2), [0]

            def on_response(response):
                with changed:
                    seen[0] += sum(len(delta.token_ids) for delta in response.deltas)
                    changed.notify_all()
            with concurrent.futures.ThreadPoolExecutor(len(chosen)) as pool:
                futures = [pool.submit(client.generate, self.requests[i], on_response=on_response)
                           for i in chosen]
                with changed:
                    self.assertTrue(changed.wait_for(lambda: seen[0] >= goal, timeout=120))
                worker.kill()
                worker = start((PLAIN, OTHER)[kill % 2])
                answers = [future.result() for future in futures]
            for i, answer in zip(chosen, answers):
                self.check(i, answer, f"killed after {goal} of {total} tokens of 25 streams")
                cut += answer.summary.migrations > 0
            client.wait_for_model()
        worker.kill()
        print(f"{OPTIONS.kills} deaths cut {cut} streams", flush=True)
        self.assertGreater(cut, 5 * OPTIONS.kills)


def http_body(request):
    """The same over HTTP."""
    conversation, constraint = request.conversation, request.constraint
    body = {"messages": [{"role": m.role, "content": m.content} for m in conversation.messages],
            "seed": request.sampling.seed, "temperature": request.sampling.temperature,
            "frequency_penalty": request.sampling.frequency_penalty, "n": request.sampling.num_sequences or 1,
            "max_tokens": request.stopping.max_tokens}
    if request.sampling.logit_bias:
        body["logit_bias"] = {str(i): bias for i, bias in request.sampling.logit_bias.items()}
    if conversation.template_arguments:
        body["chat_template_kwargs"] = json.loads(conversation.template_arguments)
    if conversation.tools:
        body["tools"] = [{"type": "function", "function": {
            "name": tool.name, "description": tool.description, "parameters": json.loads(tool.parameters),
            "strict": tool.strict}} for tool in conversation.tools]
        choice = conversation.tool_choice
        body["parallel_tool_calls"] = not choice.single_call
        if choice.mode == pb.ToolChoice.MODE_REQUIRED:
            body["tool_choice"] = ({"type": "function", "function": {"name": choice.name}}
                                   if choice.name else "required")
    kind = constraint.WhichOneof("kind")
    if kind == "json_schema":
        body["response_format"] = {"type": "json_schema", "json_schema": {
            "name": "n", "schema": json.loads(constraint.json_schema)}}
    elif kind == "choice":
        body["structured_outputs"] = {"choice": list(constraint.choice.options)}
    elif kind:
        body["structured_outputs"] = {"grammar" if kind == "lark" else kind: getattr(constraint, kind)}
    return body


def ask(gateway, body, stream=False):
    """[(text, thoughts, calls without their ids, finish reason)], a sequence each."""
    request = urllib.request.Request(
        f"http://{gateway.http_address}/v1/chat/completions", json.dumps({**body, "stream": stream}).encode(),
        {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        text = response.read().decode()
    events = ([json.loads(event[6:]) for event in text.split("\n") if event.startswith("data: {")]
              if stream else [json.loads(text)])
    said = {}
    for choice in (choice for event in events for choice in event["choices"]):
        parts = said.setdefault(choice["index"], ["", "", {}, None])
        delta = choice["delta" if stream else "message"]
        parts[0] += delta.get("content") or ""
        parts[1] += delta.get("reasoning_content") or ""
        for number, piece in enumerate(delta.get("tool_calls") or []):
            call = parts[2].setdefault(piece.get("index", number), ["", ""])
            call[0] += piece["function"].get("name") or ""
            call[1] += piece["function"].get("arguments") or ""
        parts[3] = choice.get("finish_reason") or parts[3]
    return said


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("streams", "alone", "kills"):
        parser.add_argument(f"--{name}", type=int, default=getattr(OPTIONS, name))
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
