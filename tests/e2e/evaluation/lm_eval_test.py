#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lm-eval's local-completions and local-chat-completions run local tasks against real fleets. What
it is answered, and the scores, are the same bits at 1 and at 16 requests at a time, when a worker
is killed on the way, and at 1, 2 and 4 ranks; log-likelihoods are those of float64 within 1e-3."""
import random
import unittest

import harness  # first: it finds fleet and reference
import fleet
import reference

NAMES, TOWNS = ["Mira", "Tom", "Lena", "Omar"], ["Oslo", "Lima", "Rome", "Cairo"]
NUM_DOCUMENTS = 40


class LmEvalTest(harness.HarnessTest):
    MODEL = fleet.DEMO_MODEL
    # "places" asks for the likelihood of each choice, "stories" for that of a whole text, "answers"
    # generates.
    TASKS = {
        "places": """
output_type: multiple_choice
doc_to_text: "<|begin|><|user|>{{question}}<|end|><|assistant|>"
target_delimiter: ""
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
""",
        "stories": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{question}}"
metric_list: [{metric: byte_perplexity}]
""",
        "answers": """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 24}
metric_list: [{metric: exact_match}]
""",
    }

    def documents(self):
        draw = random.Random(1)
        for _ in range(NUM_DOCUMENTS):
            homes = {name: draw.choice(TOWNS) for name in draw.sample(NAMES, 2)}
            name, home = draw.choice(list(homes.items()))
            facts = " ".join(f"{name} lives in {home}." for name, home in homes.items())
            yield {"question": f"{facts} Where does {name} live?", "answer": TOWNS.index(home),
                   "choices": [f"{name} lives in {town}." for town in TOWNS]}

    def test_completions(self):
        scores, samples = self.check_all_ways("local-completions", list(self.TASKS))
        # The demo model knows what it was trained for.
        self.assertGreater(scores["places"]["acc,none"], 0.7)
        with self.start() as servers:
            self.check_likelihoods(servers, reference.Model(self.MODEL), samples["places"],
                                   samples["stories"])

    def test_chat_completions(self):
        scores, _ = self.check_all_ways("local-chat-completions", ["answers"])
        self.assertGreater(scores["answers"]["exact_match,none"], 0.7)


if __name__ == "__main__":
    unittest.main()
