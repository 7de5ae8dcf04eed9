#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lm-eval's local-completions and local-chat-completions run local tasks against real fleets. What
it is answered, and the scores, are the same bits at 1 and at 16 requests at a time, when a worker
is killed on the way, and at 1, 2 and 4 ranks; log-likelihoods are those of float64 within 1e-3.
lm-eval is what scripts/setup.sh --all installs into build/lm-eval; nothing is downloaded."""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402
import reference  # noqa: E402
from fleet import pb  # noqa: E402

LM_EVAL = fleet.ROOT / "build/lm-eval/bin/lm_eval"
NAMES, TOWNS = ["Mira", "Tom", "Lena", "Omar"], ["Oslo", "Lima", "Rome", "Cairo"]
NUM_DOCUMENTS = 40
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


class Fleet:
    """A gateway in front of workers of so many ranks."""

    def __init__(self, ranks, num_workers=1):
        flags = ("--weights=fp32", f"--tensor_parallel={ranks}", f"--threads={ranks}",
                 "--kv_cache_memory=64MiB")
        self.workers = [fleet.start_worker(fleet.DEMO_MODEL, *flags) for _ in range(num_workers)]
        self.gateway = fleet.start_gateway(self.workers)
        self.client = fleet.Client(self.gateway.address)
        self.client.wait_for_model(num_workers)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in (self.gateway, *self.workers):
            program.kill()

    def kill_one(self):
        """Kills a worker as soon as it computes; returns the thread that does."""
        def kill():
            victim = self.workers[0]
            label = f'{{model="{fleet.DEMO_MODEL.name}"}}'
            while fleet.scrape(victim.metrics_address)[f"continuo_running_requests{label}"] == 0:
                threading.Event().wait(0.002)  # polls another process; nothing to be notified by
            victim.kill()
        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        return killer


@unittest.skipUnless(LM_EVAL.exists(), "scripts/setup.sh --all installs lm-eval")
class LmEvalTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        data = self.folder / "places.jsonl"
        draw = random.Random(1)
        with data.open("w") as out:
            for _ in range(NUM_DOCUMENTS):
                homes = {name: draw.choice(TOWNS) for name in draw.sample(NAMES, 2)}
                name, home = draw.choice(list(homes.items()))
                facts = " ".join(f"{name} lives in {home}." for name, home in homes.items())
                out.write(json.dumps({
                    "question": f"{facts} Where does {name} live?", "answer": TOWNS.index(home),
                    "choices": [f"{name} lives in {town}." for town in TOWNS]}) + "\n")
        for name, text in TASKS.items():
            (self.folder / f"{name}.yaml").write_text(
                f"task: {name}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {data}}}}}\n"
                f"test_split: test\n{text}")

    def evaluate(self, servers, api, tasks, concurrent):
        """What lm-eval computes, {task: its scores}, and was answered, {task: samples}."""
        route = "/v1/chat/completions" if "chat" in api else "/v1/completions"
        out = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        flags = ["--apply_chat_template"] if "chat" in api else ["--batch_size", "4"]
        done = subprocess.run(
            [LM_EVAL, "--model", api, "--model_args",
             f"base_url=http://{servers.gateway.http_address}{route},model={fleet.DEMO_MODEL.name},"
             f"num_concurrent={concurrent},max_retries=1,tokenizer_backend=remote,max_length=1024",
             "--tasks", ",".join(tasks), "--include_path", self.folder, "--log_samples",
             "--output_path", out, *flags],
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
                 "HF_HOME": str(self.folder / "cache"), "OPENAI_API_KEY": "none"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])
        results, = out.rglob("results_*.json")
        samples = {}
        for path in out.rglob("samples_*.jsonl"):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            samples[path.name.split("_")[1]] = sorted(lines, key=lambda line: line["doc_id"])
        self.assertEqual(sorted(samples), sorted(tasks))
        for task in tasks:
            self.assertEqual(len(samples[task]), NUM_DOCUMENTS)
        return json.loads(results.read_text())["results"], samples

    def check_all_ways(self, api, tasks):
        """Evaluates in every way and compares; returns the samples."""
        with Fleet(ranks=1, num_workers=2) as servers:
            scores, samples = self.evaluate(servers, api, tasks, concurrent=1)

            def check(other, way):
                for task in tasks:
                    with self.subTest(task=task, way=way):
                        self.assertEqual([s["resps"] for s in other[1][task]],
                                         [s["resps"] for s in samples[task]])
                        self.assertEqual(other[0][task], scores[task])

            check(self.evaluate(servers, api, tasks, concurrent=16), "16 at a time")
            killer = servers.kill_one()
            check(self.evaluate(servers, api, tasks, concurrent=16), "a worker is killed")
            killer.join(60)
            self.assertFalse(killer.is_alive(), "the worker that was to be killed computed nothing")
        for ranks in (2, 4):
            with Fleet(ranks) as servers:
                check(self.evaluate(servers, api, tasks, concurrent=16), f"{ranks} ranks")
        return scores, samples

    def test_completions(self):
        scores, samples = self.check_all_ways("local-completions", list(TASKS))
        # The demo model knows what it was trained for.
        self.assertGreater(scores["places"]["acc,none"], 0.7)
        with Fleet(ranks=1) as servers:
            self.check_against_float64(servers, samples)

    def test_chat_completions(self):
        scores, _ = self.check_all_ways("local-chat-completions", ["answers"])
        self.assertGreater(scores["answers"]["exact_match,none"], 0.7)

    def check_against_float64(self, servers, samples):
        model = reference.Model(fleet.DEMO_MODEL)

        def ids_of(text):
            request = pb.TokenizeRequest(text=text, omit_special_tokens=True)
            return list(servers.client.inference.Tokenize(request).token_ids)

        def score(context, continuation):
            rows = reference.log_softmax_rows(model.logits(context + continuation))
            return sum(rows[len(context) - 1 + i][id] for i, id in enumerate(continuation))

        def check(got, want):
            self.assertLess(abs(float(got) - want), 1e-3, (got, want))

        for sample in samples["places"]:
            for i in range(len(TOWNS)):
                arguments = sample["arguments"][f"gen_args_{i}"]
                context = ids_of(arguments["arg_0"])
                whole = ids_of(arguments["arg_0"] + arguments["arg_1"])
                self.assertEqual(whole[:len(context)], context)
                got, = sample["resps"][i]
                check(got[0], score(context, whole[len(context):]))
        # A text is scored after the beginning of a sequence or, as lm-eval takes 0 for none, its end.
        config = json.loads((fleet.DEMO_MODEL / "config.json").read_text())
        prefix = [config["bos_token_id"] or config["eos_token_id"]]
        for sample in samples["stories"]:
            got, = sample["resps"][0]
            got = got[0] if isinstance(got, list) else got
            check(got, score(prefix, ids_of(sample["doc"]["question"])))


if __name__ == "__main__":
    unittest.main()
