#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real model under lm-eval: SmolLM2-135M-Instruct, whose 9 heads and 3 KV heads split unevenly
over 2 and 4 ranks. Scores and answers are the same bits in every way that they can be asked for;
log-likelihoods are those of float64 within 1e-3, and float64 chooses the tokens of greedy answers.
scripts/setup.sh --all installs the model (smollm2.py) into build/smollm2; nothing is downloaded."""
import unittest

import harness  # first: it finds fleet and reference
import fleet
import reference
from fleet import pb

CAPITALS = {"France": "Paris", "Italy": "Rome", "Japan": "Tokyo", "Egypt": "Cairo",
            "Germany": "Berlin", "Spain": "Madrid"}
MAX_TOKENS = 12
MODEL = fleet.ROOT / "build/smollm2/SmolLM2-135M-Instruct"
# The most that logits may differ by: no other token is likelier by more than a greedy choice.
TOLERANCE = 1e-3


@unittest.skipUnless((MODEL / "config.json").exists(), "scripts/setup.sh --all installs SmolLM2")
class SmolLm2Test(harness.HarnessTest):
    MODEL = MODEL
    KV_CACHE_MEMORY = "256MiB"
    TASKS = {
        "capitals": """
output_type: multiple_choice
doc_to_text: "{{question}}"
target_delimiter: " "
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
""",
        "sentences": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{question}}"
metric_list: [{metric: byte_perplexity}]
""",
        "continuations": """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["<|im_end|>"], max_gen_toks: %d}
metric_list: [{metric: exact_match}]
""" % MAX_TOKENS,
        "answers": """
output_type: generate_until
doc_to_text: "What is the capital of {{country}}?"
doc_to_target: "The capital of {{country}} is {{choices[answer]}}."
generation_kwargs: {until: ["<|im_end|>"], max_gen_toks: %d}
metric_list: [{metric: exact_match}]
""" % MAX_TOKENS,
    }

    def documents(self):
        towns = list(CAPITALS.values())
        for i, country in enumerate(CAPITALS):
            choices = [towns[(i + k) % len(towns)] for k in range(3)]
            yield {"country": country, "question": f"The capital of {country} is",
                   "choices": choices[i % 3:] + choices[:i % 3], "answer": -i % 3}

    def check_answers(self, servers, model, samples, prompt_of):
        """Every token of a greedy answer, and its end, is one that float64 chooses."""
        for sample in samples:
            prompt = prompt_of(sample["doc"])
            request = pb.GenerateRequest(**prompt)
            request.sampling.temperature = 0
            request.stopping.max_tokens = MAX_TOKENS
            answer = servers.client.generate(request)
            # Its text does not tell how it was cut into tokens; this generation does.
            self.assertEqual([answer.text[0]], sample["resps"][0])
            context = list(servers.client.inference.Tokenize(pb.TokenizeRequest(**prompt)).token_ids)
            tokens = answer.ids[0]
            if answer.finish[0] == pb.FINISH_REASON_STOP:
                self.assertEqual(tokens[-1], model.config["eos_token_id"])
            rows = model.logits(context + tokens)[len(context) - 1:-1]
            self.assertEqual(len(rows), len(tokens))
            for row, token in zip(rows, tokens):
                self.assertLess(row.max() - row[token], TOLERANCE, (tokens, token))

    def test_completions(self):
        tasks = ["capitals", "sentences", "continuations"]
        scores, samples = self.check_all_ways("local-completions", tasks)
        # The model knows them.
        self.assertGreater(scores["capitals"]["acc,none"], 0.8)
        model = reference.Model(MODEL)
        with self.start() as servers:
            self.check_likelihoods(servers, model, samples["capitals"], samples["sentences"])
            self.check_answers(servers, model, samples["continuations"], lambda document:
                               {"text": document["question"]})

    def test_chat_completions(self):
        scores, samples = self.check_all_ways("local-chat-completions", ["answers"])
        self.assertGreater(scores["answers"]["exact_match,none"], 0.5)

        def prompt_of(document):
            message = pb.ChatMessage(role="user",
                                     content=f"What is the capital of {document['country']}?")
            return {"conversation": pb.Conversation(messages=[message])}
        with self.start() as servers:
            self.check_answers(servers, reference.Model(MODEL), samples["answers"], prompt_of)


if __name__ == "__main__":
    unittest.main()
