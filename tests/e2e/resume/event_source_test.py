#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A stock EventSource behind a proxy that cuts connections at random bytes, while gateways and workers are
killed: what it has is what an undisturbed run gives, no event twice.

    event_source_test.py [--streams=N] [--at_once=N] [--seed=N]
        N streams over each HTTP API, so many of them at a time
"""
import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from balancer import CuttingBalancer  # noqa: E402
from events import EventSource, joined  # noqa: E402
from routes import HERE, MODEL, ROUTES, FleetTest, fleet, make_key  # noqa: E402

OPTIONS = argparse.Namespace(streams=100, at_once=96, seed=35)
STREAMS_A_KILL = 10
MODULES = fleet.ROOT / "build/clients/node/node_modules"


def make_members(path, chance):
    """A request of `path`, the members in their order."""
    length = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    text = f"Tell me story {chance.randrange(1000)} of Mira, who plays the violin."
    # The hotter an answer, the longer: the model's own ends are unlikely.
    members = {**ROUTES[path], length: chance.randrange(1, 150), "temperature": chance.choice([1, 2, 3])}
    if "prompt" in members:
        members["prompt"] = text
    else:
        members["input" if "input" in members else "messages"] = [{"role": "user", "content": text}]
    if path in ("/v1/completions", "/v1/chat/completions"):
        members["n"] = chance.choice([1, 1, 1, 2, 3])
        if chance.random() < 0.3:
            members["stream_options"] = {"include_usage": True}
    return members


def without_ids(events):
    """The events with a word instead of their generation's id, of which there is one."""
    for event in events:
        data = json.loads(event["data"])
        whole = (data.get("response") or data.get("message") or data).get("id")
        if whole:
            name = whole.replace("-", "_").rsplit("_", 1)[-1]
            return [{**event, "data": event["data"].replace(name, "NAME")} for event in events]
    raise AssertionError("no event has an id")


@unittest.skipUnless((MODULES / "eventsource").exists(), "eventsource comes with scripts/setup.sh --all")
class EventSourceTest(FleetTest):
    NUM_WORKERS = 3

    @classmethod
    def start_gateway(cls, *flags):
        # Every stream is one client's here.
        return super().start_gateway(f"--token_file={cls.token}", "--tenant_max_replays=0")

    def setUp(self):
        chance = random.Random(OPTIONS.seed)
        self.chance = chance
        self.requests = []
        for number in range(OPTIONS.streams * len(ROUTES)):
            path = list(ROUTES)[number % len(ROUTES)]
            members = make_members(path, chance)
            # Without a key the same bytes come again only where nothing is sampled.
            if number // len(ROUTES) % 2:
                members["temperature"] = 0
                headers = {}
            else:
                headers = {"Idempotency-Key": make_key(chance)}
            self.requests.append((path, members, headers))

    def expected(self, number):
        path, members, headers = self.requests[number]
        source = EventSource(path, members, headers)
        source.read(self.addresses[number % len(self.addresses)])
        self.assertTrue(source.is_complete)
        return source.events

    def kill_some(self, balancer):
        """Kills a gateway or a worker each time when so many more streams have ended."""
        victims = ["gateway", "worker", "worker"]
        try:
            while True:
                with self.progress:
                    wanted = (self.num_killed.total() + 1) * STREAMS_A_KILL
                    self.progress.wait_for(lambda: self.num_ended >= wanted or self.is_over)
                    if self.is_over:
                        return
                victim = victims[self.num_killed.total() % len(victims)]
                if victim == "worker":
                    self.kill_worker(self.chance.randrange(self.NUM_WORKERS))
                else:
                    self.kill_gateway(self.chance.randrange(len(self.gateways)))
                    balancer.targets = list(self.addresses)
                self.num_killed[victim] += 1
                self.wait_for_workers()
        except Exception as error:
            self.failure = error

    def read_sources(self, balancer):
        """Returns what the client tells of each stream, by its number."""
        folder = pathlib.Path(self.folder.name)
        shutil.copy(HERE / "event_sources.mjs", folder)
        (folder / "node_modules").symlink_to(MODULES)  # modules are looked for beside the script
        asked = folder / "streams"
        with asked.open("w") as out:
            for number, (path, members, headers) in enumerate(self.requests):
                body = json.dumps({"model": MODEL, **members, "stream": True})
                json.dump({"number": number, "url": f"http://{balancer.address}{path}", "body": body,
                           "headers": {"Content-Type": "application/json", **headers}}, out)
                out.write("\n")
        told = {}
        with asked.open() as source, subprocess.Popen(
                ["node", "event_sources.mjs"], stdin=source, stdout=subprocess.PIPE, cwd=folder,
                env={**os.environ, "AT_ONCE": str(OPTIONS.at_once)}) as client:
            for line in client.stdout:
                source = json.loads(line)
                self.assertNotIn(source["number"], told)
                told[source["number"]] = source
                with self.progress:
                    self.num_ended += 1
                    self.progress.notify()
        self.assertEqual(client.returncode, 0)
        return told

    def test_what_it_has_is_what_an_undisturbed_run_gives(self):
        expected = [self.expected(number) for number in range(len(self.requests))]
        self.progress, self.num_ended, self.is_over = threading.Condition(), 0, False
        self.num_killed, self.failure = collections.Counter(), None
        balancer = CuttingBalancer(self.addresses, OPTIONS.seed)
        killer = threading.Thread(target=self.kill_some, args=(balancer,))
        killer.start()
        begin = time.monotonic()
        try:
            told = self.read_sources(balancer)
        finally:
            with self.progress:
                self.is_over = True
                self.progress.notify()
            killer.join()
            balancer.close()
        seconds = time.monotonic() - begin
        self.assertIsNone(self.failure)
        num_again = sum(source["num_errors"] - 1 for source in told.values())
        print(f"{len(told)} streams in {seconds:.0f} s: {sum(len(s['events']) for s in told.values())} events, "
              f"{balancer.num_cut} connections cut, {num_again} times connected again; killed: "
              f"{dict(self.num_killed)}", file=sys.stderr, flush=True)
        self.assertEqual(set(told), set(range(len(self.requests))))
        self.assertGreater(balancer.num_cut, len(self.requests) // 2)
        self.assertGreater(self.num_killed.total(), len(self.requests) // STREAMS_A_KILL // 4)
        for number, (path, members, headers) in enumerate(self.requests):
            events = told[number]["events"]
            with self.subTest(number=number, path=path, members=members, headers=headers):
                self.assertEqual(told[number]["status"], 204, (told[number]["refusal"], events[-1:]))
                ids = [event["id"] for event in events]
                self.assertNotIn("", ids)
                self.assertEqual(len(ids), len(set(ids)), "an event came twice")
                if headers:
                    self.assertEqual(joined(events), joined(expected[number]))
                else:
                    self.assertEqual(joined(without_ids(events)), joined(without_ids(expected[number])))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in vars(OPTIONS):
        parser.add_argument(f"--{name}", type=int, default=getattr(OPTIONS, name))
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
