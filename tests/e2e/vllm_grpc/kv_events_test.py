#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SubscribeKvEvents: what subscribers are told is what prompts find in the prefix cache of a worker that has room for
little."""
import concurrent.futures
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from subscriber import Engine, Subscriber, common_pb2, fleet, grpc  # noqa: E402

BLOCK = 16
TEXT = "Mira lives in Oslo and plays the violin. "


class KvEventsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.worker = fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", "--kv_blocks=96", f"--block_size={BLOCK}")
        cls.engine = Engine(cls.worker.address)
        cls.engine.client.wait_for_model()

    @classmethod
    def tearDownClass(cls):
        cls.worker.kill()

    def prompt(self, name, repeats=12):
        tokens = self.engine.tokens(f"{name}: " + TEXT * repeats)
        self.assertGreater(len(tokens), 4 * BLOCK)
        return tokens

    def wait_for(self, subscriber, tokens):
        """Until all whole blocks of the prompt are there."""
        whole = (len(tokens) - 1) // BLOCK * BLOCK
        subscriber.wait_until(lambda: subscriber.cached(tokens) == whole, "the prompt's blocks")
        return whole

    def test_1_the_tokens_are_the_prompts(self):
        subscriber = Subscriber(self.engine)
        subscriber.wait_until(lambda: subscriber.numbers, "the snapshot")
        self.assertEqual((len(subscriber.parts), subscriber.cleared), (1, 1))
        prompt = self.prompt("first")
        self.assertEqual(self.engine.cached_tokens(prompt), 0)
        whole = self.wait_for(subscriber, prompt)
        self.assertEqual(self.engine.cached_tokens(prompt), whole, "a hit")
        # What goes on differently has the beginning alone.
        other = prompt[:3 * BLOCK] + [7] * 40
        self.assertEqual(subscriber.cached(other), 3 * BLOCK)
        self.assertEqual(self.engine.cached_tokens(other), 3 * BLOCK)
        subscriber.cancel()

    def test_2_two_subscribers_and_a_late_one_know_the_same(self):
        first, second = Subscriber(self.engine), Subscriber(self.engine)
        for subscriber in first, second:
            subscriber.wait_until(lambda: subscriber.numbers, "the snapshot")
        prompts = [self.prompt(f"two {i}", 6) for i in range(3)]
        for prompt in prompts:
            self.engine.generate(prompt, max_tokens=40)
        for subscriber in first, second:
            self.wait_for(subscriber, prompts[-1])
        late = Subscriber(self.engine)
        self.wait_for(late, prompts[-1])
        # All have what the last of them begins with.
        last = late.numbers[0]
        for subscriber in first, second:
            subscriber.wait_until(lambda: subscriber.numbers[-1] >= last, "the last batch")
        self.assertEqual(first.blocks, second.blocks)
        self.assertEqual(first.blocks, late.blocks)
        for subscriber in first, second, late:
            subscriber.cancel()

    def test_3_what_makes_room_is_removed(self):
        subscriber = Subscriber(self.engine)
        prompts = [self.prompt(f"three {i}", 30) for i in range(12)]
        self.assertGreater(sum(map(len, prompts)), 2 * self.engine.capacity())
        for prompt in prompts:
            self.engine.generate(prompt)
        self.wait_for(subscriber, prompts[-1])
        self.assertGreater(subscriber.removed, 50)
        self.assertLessEqual(len(subscriber.blocks) * BLOCK, self.engine.capacity())
        # What it knows is what prompts find, whichever the cache has kept.
        known = [subscriber.cached(prompt) for prompt in prompts]
        self.assertEqual(known[0], 0)
        self.assertEqual(self.engine.cached_tokens(prompts[0]), 0)
        self.wait_for(subscriber, prompts[0])
        for prompt in reversed(prompts):
            expected = subscriber.cached(prompt)
            self.assertEqual(self.engine.cached_tokens(prompt), expected)
            self.wait_for(subscriber, prompt)
        subscriber.cancel()

    def test_4_a_subscriber_goes_on(self):
        subscriber = Subscriber(self.engine)
        prompt = self.prompt("four")
        self.engine.generate(prompt)
        self.wait_for(subscriber, prompt)
        last = subscriber.numbers[-1]
        subscriber.cancel()
        missed = self.prompt("missed")
        self.engine.generate(missed)
        again = Subscriber(self.engine, start=last, earlier=subscriber)
        self.wait_for(again, missed)
        self.assertEqual((again.numbers[0], again.cleared, len(again.parts)), (last, 0, 0))
        again.cancel()
        stranger = Subscriber(self.engine, start=last + 1000)
        with self.assertRaises(grpc.RpcError) as raised:
            stranger.wait_until(lambda: False, "an end")
        self.assertEqual(raised.exception.code(), grpc.StatusCode.OUT_OF_RANGE)

    def test_5_tenants_are_told_of_their_own(self):
        mine, others = Subscriber(self.engine, tenant="mine"), Subscriber(self.engine)
        secret, prompt = self.prompt("five"), self.prompt("after")
        self.engine.generate(secret, tenant="mine")
        self.engine.generate(prompt)
        self.wait_for(mine, secret)
        self.wait_for(others, prompt)
        self.assertEqual((others.cached(secret), mine.cached(prompt)), (0, 0))
        self.assertEqual(self.engine.cached_tokens(secret), 0, "it would be of no use to others")
        mine.cancel()
        others.cancel()

    def test_6_one_who_does_not_read_disturbs_nobody(self):
        # gRPC for Python takes in messages for nobody until its windows are full.
        stalled = self.engine.stub.SubscribeKvEvents(common_pb2.SubscribeKvEventsRequest())
        reader = Subscriber(self.engine)
        prompts = [self.prompt(f"six {i}", 20) for i in range(24)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(self.engine.generate, prompts))
        self.assertTrue(all(len(answer.output_ids) == 1 for answer in answers))
        self.engine.generate(prompts[-1])
        self.wait_for(reader, prompts[-1])
        stalled.cancel()
        reader.cancel()


if __name__ == "__main__":
    unittest.main(verbosity=2)
