#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests that are sent again with one Idempotency-Key, at two gateways, behind a proxy that cuts connections,
while gateways and workers are killed: one answer each, one record each in the ledgers, whose sums are the
tokens of the answers and what the workers have counted.

    retries_test.py [--requests=N] [--at_once=N] [--seed=N]
"""
import argparse
import collections
import concurrent.futures
import http.client
import json
import pathlib
import random
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from balancer import CuttingBalancer  # noqa: E402
from events import joined, parse, usage_of  # noqa: E402
from routes import MODEL, ROUTES, FleetTest, fleet, make_key, post  # noqa: E402

OPTIONS = argparse.Namespace(requests=100, at_once=12, seed=13)
MAX_RETRIES = 5
REQUESTS_A_KILL = 12
# Another try has the stream now: this gateway heard so itself, or as it went on at another worker.
REPLACED = ('"message":"replaced by ', '"message":"the client has gone on with this request itself"')


class Asked:
    """A request with a key, and all whole answers that its tries have had."""

    def __init__(self, number):
        chance = random.Random(OPTIONS.seed << 32 | number)
        self.path = list(ROUTES)[number % len(ROUTES)]
        length = "max_output_tokens" if self.path == "/v1/responses" else "max_tokens"
        self.members = {**ROUTES[self.path], length: chance.randrange(1, 80), "stream": chance.random() < 0.4}
        if self.path in ("/v1/completions", "/v1/chat/completions"):
            self.members |= {"n": chance.choice([1, 1, 2]), "return_token_ids": True}
            if self.members["stream"]:
                self.members["stream_options"] = {"include_usage": True}
        self.headers = {"Idempotency-Key": make_key(chance)}
        self.num_retries = chance.randrange(1, MAX_RETRIES + 1)
        self.is_hurried = chance.random() < 0.2  # does not wait for an answer before it asks again
        self.answers, self.request_ids, self.num_tries, self.statuses = [], set(), 0, collections.Counter()

    def try_once(self, address):
        """True for a whole answer. Whatever a cut or a kill may cause is none."""
        self.num_tries += 1
        try:
            reply = post(address, self.path, self.members, self.headers)
        except (http.client.HTTPException, OSError):
            self.statuses["lost"] += 1
            return False
        self.statuses[reply.status] += 1
        if reply.status in (409, 503):  # replaced by another try; no worker is there
            return False
        if reply.status != 200:
            raise AssertionError(f"{self.path} {self.members}: {reply.status} {reply.body}")
        answer = self.read(reply.body)
        if answer is None:
            return False
        self.answers.append(answer)
        self.request_ids.add(reply.headers["x-request-id"])
        return True

    def read(self, body):
        """Returns what the answer says; None of a stream that another try has ended."""
        if not self.members["stream"]:
            return body
        events = parse(body)
        if any(words in event["data"] and "id" not in event for event in events for words in REPLACED):
            self.statuses["replaced"] += 1
            return None
        return joined(events)

    def ask(self, balancer, addresses):
        """The first try and all that follow it; the last one, where none had an answer, is not cut."""
        tries = 1 + self.num_retries
        if self.is_hurried:
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                list(pool.map(self.try_once, [balancer.address] * 2))
            tries -= 2
        for _ in range(tries):
            self.try_once(balancer.address)
        if not self.answers:
            fleet.wait_until(lambda: self.try_once(random.choice(addresses)), "an answer that nobody cuts")
        return self

    def usage(self):
        """[tokens of the prompt, tokens of the answer] as the body tells them."""
        if not self.members["stream"]:
            body = json.loads(self.answers[0])
            ids = sum(len(choice["token_ids"]) for choice in body.get("choices", []))
            usage = usage_of(body["usage"])
            if ids and ids != usage[1]:
                raise AssertionError(f"{ids} ids, {usage}")
            return usage
        for whole in reversed([event for event in self.answers[0][2] if isinstance(event, dict)]):
            usage = whole.get("usage") or (whole.get("response") or {}).get("usage")
            if usage:
                return usage
        raise AssertionError("no usage")


class RetriesTest(FleetTest):
    NUM_WORKERS = 3

    @classmethod
    def setUpClass(cls):
        cls.num_gateways = 0
        super().setUpClass()

    @classmethod
    def start_gateway(cls, *flags):
        cls.num_gateways += 1
        return super().start_gateway(f"--token_file={cls.token}",
                                     f"--usage_log={cls.folder.name}/ledger.{cls.num_gateways}")

    def lines(self):
        """Returns the lines of the ledgers of all gateways that there were."""
        return [json.loads(line) for ledger in pathlib.Path(self.folder.name).glob("ledger.*")
                for line in ledger.read_text().splitlines()]

    def counted(self):
        """[prompt, generated] tokens that the workers have counted."""
        pages = [fleet.scrape(worker.metrics_address) for worker in self.workers]
        return [sum(page[f'continuo_{kind}_tokens_total{{model="{MODEL}"}}'] for page in pages)
                for kind in ("prompt", "generated")]

    def ask_under_kills(self, asked):
        chance = random.Random(OPTIONS.seed)
        balancer = CuttingBalancer(self.addresses, OPTIONS.seed, longest=1500)
        killed = collections.Counter()
        with concurrent.futures.ThreadPoolExecutor(OPTIONS.at_once) as pool:
            futures = [pool.submit(one.ask, balancer, self.addresses) for one in asked]
            for number, future in enumerate(futures):
                future.result()
                if number % REQUESTS_A_KILL == REQUESTS_A_KILL - 1:
                    if number // REQUESTS_A_KILL % 3:
                        self.kill_worker(chance.randrange(self.NUM_WORKERS))
                        killed["worker"] += 1
                    else:
                        self.kill_gateway(chance.randrange(2))
                        balancer.targets = list(self.addresses)
                        killed["gateway"] += 1
                    self.wait_for_workers()
        balancer.close()
        for worker in self.workers:
            if worker.address is None:
                worker.wait_until_listening()
        return balancer, killed

    def records(self, lines):
        """The records that are left of the lines where several of one generation are one: what has finished
        by its tenant and request_id. Lines of one generation do not contradict each other."""
        records = {}
        for line in lines:
            if line["outcome"] != "finished":
                self.assertIn(line["outcome"], ("cancelled", "replaced", "failed"), line)
                continue
            record = [line[name] for name in ("model", "fingerprint", "prompt_tokens", "generated_tokens")]
            self.assertEqual(records.setdefault((line["tenant"], line["request_id"]), record), record)
            self.assertTrue(line["again"])
        calls = [line["call"] for line in lines]
        self.assertEqual(len(calls), len(set(calls)))
        return records

    def test_one_answer_and_one_record_each(self):
        asked = [Asked(number) for number in range(OPTIONS.requests)]
        begin = time.monotonic()
        balancer, killed = self.ask_under_kills(asked)
        seconds = time.monotonic() - begin
        statuses = sum((one.statuses for one in asked), collections.Counter())
        num_tries, num_answers = (sum(f(one) for one in asked) for f in (
            lambda one: one.num_tries, lambda one: len(one.answers)))
        fleet.wait_until(self.is_idle, "the ends of all calls")
        lines = self.lines()
        outcomes = collections.Counter(line["outcome"] for line in lines)
        print(f"{len(asked)} requests in {seconds:.0f} s: {num_tries} tries, {num_answers} whole answers, "
              f"{balancer.num_cut} connections cut; killed: {dict(killed)}; {dict(statuses)}; "
              f"{len(lines)} lines: {dict(outcomes)}", file=sys.stderr, flush=True)
        # One answer each.
        for one in asked:
            self.assertEqual(one.answers, one.answers[:1] * len(one.answers), (one.path, one.members))
            self.assertEqual(len(one.request_ids), 1)
        self.assertGreater(num_answers, len(asked))
        self.assertGreater(statuses["lost"], len(asked) // 2)
        # One record each, with the tokens of the answer.
        records = self.records(lines)
        names = {next(iter(one.request_ids)): one for one in asked}
        self.assertEqual({name for _, name in records}, set(names))
        for (_, name), record in records.items():
            self.assertEqual(record[2:], names[name].usage(), (names[name].path, names[name].members))
        sums = [sum(record[i] for record in records.values()) for i in (2, 3)]
        self.assertEqual(sums, [sum(one.usage()[i] for one in asked) for i in (0, 1)])
        self.check_undisturbed(asked, sums, len(lines))

    def is_idle(self):
        return not any(
            sum(value for series, value in fleet.scrape(program.metrics_address).items()
                if series.startswith(("continuo_gateway_open_streams", "continuo_running_requests{",
                                      "continuo_waiting_requests{")))
            for program in (*self.gateways, *self.workers))

    def check_undisturbed(self, asked, sums, num_lines):
        """Each request once more: the same bytes, a line each; what the ledgers and the workers count is the same."""
        before = self.counted()
        with concurrent.futures.ThreadPoolExecutor(OPTIONS.at_once) as pool:
            for i, (one, told) in enumerate(zip(asked, pool.map(
                    lambda pair: pair[1].try_once(self.addresses[pair[0] % 2]), enumerate(asked)))):
                self.assertTrue(told, one.statuses)
                self.assertEqual(one.answers[-1], one.answers[0])
        fleet.wait_until(self.is_idle, "the ends of all calls")
        lines = sorted(self.lines(), key=lambda line: line["time"])[num_lines:]
        self.assertEqual(len(lines), len(asked))
        for name, i in (("prompt_tokens", 0), ("generated_tokens", 1), ("delivered_tokens", 1)):
            self.assertEqual(sum(line[name] for line in lines), sums[i], name)
        after = self.counted()
        self.assertEqual([a - b for a, b in zip(after, before)], sums)
        print(f"once more without kills: {sums} tokens of prompts and answers in {len(lines)} lines, "
              "as the workers counted", file=sys.stderr, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in vars(OPTIONS):
        parser.add_argument(f"--{name}", type=int, default=getattr(OPTIONS, name))
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
