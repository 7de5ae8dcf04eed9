#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every field of Sampling, Stopping and Output does what its comment says, through gateway and
worker, compared with a float64 model and sampler (reference.py).

A field without a test of its name here is a failure.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import grpc  # noqa: E402
import fleet  # noqa: E402
import reference  # noqa: E402
from fleet import pb  # noqa: E402

EOS = 7
PROMPT = [40, 91, 13, 77, 102, 200, 91, 13, 55]
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "bos_token_id": 1, "eos_token_id": EOS, "torch_dtype": "float32",
}


def make_model(directory):
    config = pathlib.Path(directory) / "config.json"
    config.write_text(json.dumps(CONFIG))
    model = pathlib.Path(directory) / "fields"
    subprocess.run([fleet.BIN / "continuo-make-model", f"--config={config}", f"--out={model}",
                    "--seed=5", "--dtype=fp32"], check=True, stdout=subprocess.DEVNULL)
    return model


class FieldsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        directory = make_model(cls.folder.name)
        cls.model = reference.Model(directory)
        cls.worker = fleet.start_worker(directory, "--weights=fp32")
        cls.gateway = fleet.start_gateway([cls.worker])
        cls.client = fleet.Client(cls.gateway.address)
        cls.client.wait_for_model()

    @classmethod
    def tearDownClass(cls):
        cls.gateway.kill()
        cls.worker.kill()
        cls.folder.cleanup()

    def request(self, max_tokens=24, temperature=1.0, seed=3):
        request = pb.GenerateRequest()
        request.token_ids.ids.extend(PROMPT)
        request.sampling.temperature = temperature
        request.sampling.seed = seed
        request.stopping.max_tokens = max_tokens
        return request

    def check(self, request):
        """The service's answer, after comparing its ids with the reference's."""
        answer = self.client.generate(request)
        for index in range(max(1, request.sampling.num_sequences)):
            self.assertEqual(answer.ids.get(index, []),
                             reference.generate(self.model, request, index, EOS))
        return answer

    def check_changes(self, request, change, field):
        """`change` makes other tokens of the request, the reference's in both cases."""
        before = self.check(request).ids
        change(request)
        after = self.check(request).ids
        self.assertNotEqual(before, after, f"{field} changed nothing")

    # Sampling.

    def test_sampling_temperature(self):
        for value in (0, 0.3, 2.5, 100):
            self.check_changes(self.request(), lambda r, v=value: setattr(
                r.sampling, "temperature", v), "temperature")

    def test_sampling_top_k(self):
        for value in (1, 2, 10):
            self.check_changes(self.request(), lambda r, v=value: setattr(
                r.sampling, "top_k", v), "top_k")

    def test_sampling_top_p(self):
        for value in (0.001, 0.3, 0.8):
            self.check_changes(self.request(), lambda r, v=value: setattr(
                r.sampling, "top_p", v), "top_p")

    def test_sampling_min_p(self):
        for value in (1.0, 0.98, 0.9):
            self.check_changes(self.request(temperature=0.5), lambda r, v=value: setattr(
                r.sampling, "min_p", v), "min_p")

    def test_sampling_filters_in_order(self):
        request = self.request(temperature=0.6)
        request.sampling.min_p, request.sampling.top_k, request.sampling.top_p = 0.8, 60, 0.5
        self.check(request)

    def test_sampling_seed(self):
        self.check_changes(self.request(), lambda r: setattr(r.sampling, "seed", 2**63 + 5), "seed")
        request = self.request()
        request.sampling.ClearField("seed")
        first, second = self.client.generate(request), self.client.generate(request)
        self.assertNotEqual(first.accepted[0].seed, second.accepted[0].seed)
        self.assertLess(first.accepted[0].seed, 2**53)
        request.sampling.seed = first.accepted[0].seed
        self.assertEqual(self.check(request).ids, first.ids)

    def test_sampling_num_sequences(self):
        for n in (2, 5, 128):
            request = self.request(max_tokens=6 if n == 128 else 20)
            request.sampling.num_sequences = n
            answer = self.check(request)
            self.assertEqual(sorted(answer.ids), list(range(n)))
            self.assertGreater(len({tuple(ids) for ids in answer.ids.values()}), n // 2)

    def test_sampling_repetition_penalty(self):
        for value in (0.2, 2.0):
            self.check_changes(self.request(40), lambda r, v=value: setattr(
                r.sampling, "repetition_penalty", v), "repetition_penalty")

    def test_sampling_presence_penalty(self):
        for value in (-2, 2):
            request = self.request(60)
            request.sampling.top_k = 20
            self.check_changes(request, lambda r, v=value: setattr(
                r.sampling, "presence_penalty", v), "presence_penalty")

    def test_sampling_frequency_penalty(self):
        for value in (-2, 2):
            request = self.request(60)
            request.sampling.top_k = 20
            self.check_changes(request, lambda r, v=value: setattr(
                r.sampling, "frequency_penalty", v), "frequency_penalty")

    def test_sampling_penalties_together(self):
        request = self.request(60)
        request.sampling.repetition_penalty = 1.4
        request.sampling.presence_penalty = 0.7
        request.sampling.frequency_penalty = 0.4
        request.sampling.top_k = 30
        self.check(request)

    def test_sampling_logit_bias(self):
        def change(request):
            request.sampling.logit_bias[100] = 5
            request.sampling.logit_bias[17] = -100
            request.sampling.logit_bias[299] = 4.5
        self.check_changes(self.request(), change, "logit_bias")
        self.check_changes(self.request(temperature=0), change, "logit_bias")

    def test_sampling_allowed_token_ids(self):
        def allow(request):
            request.sampling.allowed_token_ids.extend([5, 91, 250, EOS, 5])
        self.check_changes(self.request(), allow, "allowed_token_ids")
        self.check_changes(self.request(temperature=0), allow, "allowed_token_ids")
        request = self.request(40)
        allow(request)
        request.stopping.min_tokens = 30
        answer = self.check(request)
        self.assertGreaterEqual(len(answer.ids[0]), 30)
        self.assertLessEqual(set(answer.ids[0]), {5, 91, 250, EOS})
        request.sampling.num_sequences = 3
        self.check(request)
        self.check_continuations(request)

    def check_continuations(self, request):
        """The rest of an answer is the same whatever part of it the client brings."""
        whole = self.client.generate(request)
        for cut in range(0, len(whole.ids[0]), 5):
            part = pb.GenerateRequest()
            part.CopyFrom(request)
            received = part.continuation.received
            received.accepted.CopyFrom(whole.accepted[0])
            for index, ids in whole.ids.items():
                received.deltas.add(index=index, token_ids=ids[:cut])
            rest = self.client.generate(part)
            for index, ids in whole.ids.items():
                self.assertEqual(ids[:cut] + rest.ids.get(index, []), ids)

    def test_sampling_bad_words(self):
        request = self.text_request()
        before = self.check(request)
        text = before.text[0]
        # Tokens of the text are letters; a word of one to three of them, which the text has.
        for length in (1, 2, 3):
            banned = self.text_request()
            words = [text[10:10 + length], text[25:25 + length]]
            banned.sampling.bad_words.extend(words)
            bars = [self.tokenize(space + word) for word in words for space in ("", " ")]
            answer = self.client.generate(banned)
            self.assertEqual(answer.ids[0],
                             reference.generate(self.model, banned, 0, EOS, bars))
            self.assertNotEqual(answer.ids, before.ids)
            for bar in bars:
                for i in range(len(answer.ids[0])):
                    self.assertNotEqual(answer.ids[0][i:i + len(bar)], bar)
            self.check_continuations(banned)
        # Where nothing else is left, the bad words give way.
        request = self.request(12)
        request.sampling.allowed_token_ids.append(before.ids[0][0])
        request.sampling.bad_words.append(text[0])
        self.assertEqual(self.client.generate(request).ids[0], [before.ids[0][0]] * 12)

    def tokenize(self, text):
        return list(self.client.inference.Tokenize(pb.TokenizeRequest(
            text=text, omit_special_tokens=True)).token_ids)

    # Stopping.

    def test_stopping_max_tokens(self):
        request = self.request(24)
        long = self.check(request)
        request.stopping.max_tokens = 5
        short = self.check(request)
        self.assertEqual(short.ids[0], long.ids[0][:5])
        self.assertEqual(short.finish[0], pb.FINISH_REASON_LENGTH)
        request.stopping.max_tokens = 0
        none = self.client.generate(request)
        self.assertEqual(none.ids.get(0, []), [])
        self.assertEqual(none.finish[0], pb.FINISH_REASON_LENGTH)
        self.assertEqual(none.summary.usage.prompt_tokens, len(PROMPT))
        request.stopping.max_tokens = 2**32 - 1  # cut to what the context leaves
        whole = self.check(request)
        self.assertLessEqual(len(whole.ids[0]), 256 - len(PROMPT))

    def eos_request(self):
        request = self.request(40)
        request.sampling.logit_bias[EOS] = 4
        return request

    def test_stopping_min_tokens(self):
        request = self.eos_request()
        before = self.check(request)
        self.assertEqual(before.finish[0], pb.FINISH_REASON_STOP)
        request.stopping.min_tokens = len(before.ids[0]) + 3
        after = self.check(request)
        self.assertGreater(len(after.ids[0]), len(before.ids[0]) + 2)

    def test_stopping_ignore_eos(self):
        request = self.eos_request()
        before = self.check(request)
        self.assertEqual(before.ids[0][-1], EOS)
        request.stopping.ignore_eos = True
        after = self.check(request)
        self.assertEqual(after.ids[0][:len(before.ids[0])], before.ids[0])
        self.assertEqual(len(after.ids[0]), 40)

    def test_stopping_token_ids(self):
        request = self.request()
        before = self.check(request).ids[0]
        request.stopping.token_ids.extend([before[9], before[14]])
        after = self.check(request)
        self.assertEqual(after.ids[0], before[:before.index(before[9]) + 1])
        self.assertEqual(after.finish[0], pb.FINISH_REASON_STOP)
        self.assertEqual(after.matched[0], ("stop_token_id", after.ids[0][-1]))

    def text_request(self):
        """A request whose answer has only letters and spaces, so that its text is its bytes."""
        request = self.request(40)
        request.output.logprobs = 0
        letters = [i for i, b in reference.token_bytes(self.folder.name + "/fields").items()
                   if b.isalpha() and b.isascii()][:24]
        for i in letters:
            request.sampling.logit_bias[i] = 60
        return request

    def test_stopping_strings(self):
        request = self.text_request()
        before = self.check(request)
        text = before.text[0]
        self.assertEqual(len(text), 40)
        stop = text[10:13]
        request.stopping.strings.extend([text[30:34], stop, text[11:13]])
        after = self.client.generate(request)
        cut = min(text.index(stop[1:]) + 2, text.index(stop) + 3)
        self.assertEqual(after.ids[0], before.ids[0][:cut])
        self.assertEqual(after.finish[0], pb.FINISH_REASON_STOP)
        kind, matched = after.matched[0]
        self.assertEqual(kind, "stop_sequence")
        self.assertTrue(text[:cut].endswith(matched))
        self.assertEqual(after.text[0], text[:cut - len(matched)])
        self.assertEqual(after.summary.usage.completion_tokens, cut)

    def test_stopping_include_stop(self):
        request = self.text_request()
        text = self.check(request).text[0]
        request.stopping.strings.append(text[10:13])
        without = self.client.generate(request)
        request.stopping.include_stop = True
        with_stop = self.client.generate(request)
        self.assertEqual(with_stop.ids, without.ids)
        self.assertEqual(with_stop.text[0], without.text[0] + text[10:13])
        # A token's text, too.
        request = self.text_request()
        ids = self.client.generate(request).ids[0]
        request.stopping.token_ids.append(ids[4])
        cut = ids.index(ids[4]) + 1
        without = self.client.generate(request)
        request.stopping.include_stop = True
        with_stop = self.check(request)
        self.assertEqual((without.ids[0], with_stop.ids[0]), (ids[:cut], ids[:cut]))
        token = reference.token_bytes(self.folder.name + "/fields")[ids[4]].decode()
        self.assertEqual(with_stop.text[0], without.text[0] + token)

    def test_stopping_time_limit(self):
        request = self.request()
        request.stopping.time_limit.FromNanoseconds(0)
        none = self.client.generate(request)
        self.assertEqual(none.ids.get(0, []), [])
        self.assertEqual(none.finish[0], pb.FINISH_REASON_TIME_LIMIT)
        request.stopping.time_limit.FromSeconds(3600)
        answer = self.check(request)
        self.assertEqual(answer.finish[0], pb.FINISH_REASON_LENGTH)
        # The limit has passed before the continuation: the generation began long ago.
        request.continuation.received.accepted.CopyFrom(answer.accepted[0])
        request.continuation.received.accepted.reference_time.FromSeconds(int(time.time()) - 7200)
        self.assertEqual(self.client.generate(request).finish[0], pb.FINISH_REASON_TIME_LIMIT)

    # Output.

    def check_scores(self, scores, tokens, context, num_alternatives):
        self.assertEqual([s.token_id for s in scores], tokens)
        rows = reference.log_softmax_rows(self.model.logits(context + tokens))
        for i, score in enumerate(scores):
            row = rows[len(context) + i - 1]
            self.assertAlmostEqual(score.logprob, row[score.token_id], delta=2e-5)
            self.assertEqual(len(score.alternatives), num_alternatives)
            best = sorted(range(len(row)), key=lambda t: (-row[t], t))[:num_alternatives]
            self.assertEqual([a.token_id for a in score.alternatives], best)
            for a in score.alternatives:
                self.assertAlmostEqual(a.logprob, row[a.token_id], delta=2e-5)

    def test_output_logprobs(self):
        request = self.request()
        plain = self.check(request)
        self.assertEqual(plain.logprobs[0], [])
        request.sampling.repetition_penalty = 1.3
        request.sampling.logit_bias[50] = 3
        for n in (0, 1, 20):
            request.output.logprobs = n
            answer = self.check(request)
            self.check_scores(answer.logprobs[0], answer.ids[0], PROMPT, n)

    def test_output_prompt_logprobs(self):
        request = self.request()
        for n in (0, 4):
            request.output.prompt_logprobs = n
            answer = self.check(request)
            self.check_scores(answer.prompt_logprobs, PROMPT[1:], PROMPT[:1], n)
        request.stopping.max_tokens = 0
        self.check_scores(self.client.generate(request).prompt_logprobs, PROMPT[1:], PROMPT[:1], 4)

    def test_output_collect(self):
        request = self.request()
        request.sampling.num_sequences = 3
        streamed = self.check(request)
        request.output.collect = True
        collected = self.check(request)
        self.assertEqual(len(collected.responses), 1)
        self.assertEqual(len(collected.responses[0].deltas), 3)
        self.assertEqual(collected.comparable()["text"], streamed.comparable()["text"])

    def test_output_progress(self):
        # A long prompt, a few tokens a step.
        worker = fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", "--max_prefill_chunk=4")
        self.addCleanup(worker.kill)
        gateway = fleet.start_gateway([worker])
        self.addCleanup(gateway.kill)
        client = fleet.Client(gateway.address)
        client.wait_for_model()
        request = pb.GenerateRequest()
        request.token_ids.ids.extend(20 + i % 1000 for i in range(960))
        request.sampling.temperature = 0
        request.stopping.max_tokens = 8
        request.stopping.ignore_eos = True
        request.cache.bypass = True
        plain = client.generate(request)
        self.assertFalse(any(r.HasField("progress") for r in plain.responses))
        request.output.progress = True
        answer = client.generate(request)
        self.assertEqual(answer.ids, plain.ids)
        # A response has the newest progress, perhaps together with the first tokens.
        told, num_ids = [], 0
        for response in answer.responses:
            if response.HasField("progress"):
                self.assertEqual(num_ids, 0, "progress after the first token")
                told.append(response.progress)
            num_ids += sum(len(d.token_ids) for d in response.deltas)
        self.assertEqual(num_ids, 8)
        self.assertEqual({p.prompt_tokens for p in told}, {960})
        self.assertEqual({p.queue_position for p in told}, {0})
        done = [p.prompt_tokens_done for p in told]
        self.assertGreater(len(done), 2)
        self.assertEqual(done, sorted(set(done)), "not increasing")
        self.assertLess(done[-1], 960, "the last chunk gives a token, not progress")
        self.assertEqual({p.cached_prompt_tokens for p in told}, {0})
        # The cached part of the prompt is done from the beginning.
        request.cache.bypass = False
        client.generate(request)
        request.token_ids.ids[-20:] = [9] * 20
        told = [r.progress for r in client.generate(request).responses if r.HasField("progress")]
        self.assertEqual(told[-1].cached_prompt_tokens, 928)
        self.assertGreater(told[-1].prompt_tokens_done, 928)

    def test_output_prompt_tokens(self):
        request = self.request()
        self.assertFalse(any(r.prompt_tokens for r in self.client.generate(request).responses))
        request.output.prompt_tokens = True
        for collect in (False, True):
            request.output.collect = collect
            answer = self.check(request)
            self.assertEqual([t.token_id for r in answer.responses for t in r.prompt_tokens], PROMPT)
        request.truncation.max_tokens = 4
        ids = [t.token_id for r in self.client.generate(request).responses
               for t in r.prompt_tokens]
        self.assertEqual(ids, PROMPT[-4:])

    # The prompt.

    def test_truncation(self):
        for most, first in ((1, False), (4, False), (4, True), (9, False), (200, True)):
            request, cut = self.request(), self.request()
            request.truncation.max_tokens, request.truncation.keep_first = most, first
            cut.token_ids.ids[:] = PROMPT[:most] if first else PROMPT[-most:]
            answer = self.client.generate(request)
            self.assertEqual(answer.ids, self.check(cut).ids)
            self.assertEqual(answer.summary.usage.prompt_tokens, min(most, len(PROMPT)))
        request = self.request(100)
        request.token_ids.ids[:] = [20 + i % 200 for i in range(1000)]
        with self.assertRaises(grpc.RpcError) as caught:
            self.client.generate(request)
        self.assertIn("This model's maximum context length is 256 tokens. However, your prompt has "
                      "1000 tokens.", caught.exception.details())
        request.truncation.SetInParent()
        self.assertEqual(self.client.generate(request).summary.usage.prompt_tokens, 156)

    def test_every_field_has_a_test(self):
        for name in ("Sampling", "Stopping", "Output"):
            for field in pb.DESCRIPTOR.message_types_by_name[name].fields:
                self.assertTrue(hasattr(self, f"test_{name.lower()}_{field.name}"),
                                f"{name}.{field.name} has no test")


if __name__ == "__main__":
    unittest.main(verbosity=2)
