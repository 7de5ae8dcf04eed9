# SPDX-License-Identifier: Apache-2.0
"""lm-eval's tasks on real fleets, for tests: runs them in every way that must not change a bit, and
compares log-likelihoods with those of float64. lm-eval is what scripts/setup.sh --all installs into
build/lm-eval; nothing is downloaded."""
import json
import os
import pathlib
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
MAX_CONTEXT_TOKENS = 1024


class Fleet:
    """A gateway in front of workers of so many ranks."""

    def __init__(self, model, ranks, num_workers=1, kv_cache_memory="64MiB"):
        self.model = model
        flags = ("--weights=fp32", f"--tensor_parallel={ranks}", f"--threads={ranks}",
                 f"--kv_cache_memory={kv_cache_memory}",
                 f"--max_context_tokens={MAX_CONTEXT_TOKENS}")
        self.workers = [fleet.start_worker(model, *flags) for _ in range(num_workers)]
        self.gateway = fleet.start_gateway(self.workers)
        self.client = fleet.Client(self.gateway.address)
        self.client.wait_for_model(num_workers)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in (self.gateway, *self.workers):
            program.kill()

    def ids_of(self, text):
        request = pb.TokenizeRequest(text=text, omit_special_tokens=True)
        return list(self.client.inference.Tokenize(request).token_ids)

    def kill_one(self):
        """Kills a worker as soon as it computes; returns the thread that does."""
        def kill():
            victim = self.workers[0]
            label = f'{{model="{self.model.name}"}}'
            while fleet.scrape(victim.metrics_address)[f"continuo_running_requests{label}"] == 0:
                threading.Event().wait(0.002)  # polls another process; nothing to be notified by
            victim.kill()
        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        return killer


@unittest.skipUnless(LM_EVAL.exists(), "scripts/setup.sh --all installs lm-eval")
class HarnessTest(unittest.TestCase):
    """The base of tests of one model."""
    MODEL = None
    TASKS = {}  # {name: the task in lm-eval's YAML, without its data}
    KV_CACHE_MEMORY = "64MiB"

    def documents(self):
        raise NotImplementedError

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        data = self.folder / "documents.jsonl"
        lines = [json.dumps(document) + "\n" for document in self.documents()]
        self.num_documents = len(lines)
        data.write_text("".join(lines))
        for name, text in self.TASKS.items():
            (self.folder / f"{name}.yaml").write_text(
                f"task: {name}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {data}}}}}\n"
                f"test_split: test\n{text}")

    def start(self, ranks=1, num_workers=1):
        return Fleet(self.MODEL, ranks, num_workers, self.KV_CACHE_MEMORY)

    def evaluate(self, servers, api, tasks, concurrent):
        """Returns what lm-eval computes, {task: its scores}, and was answered, {task: samples}."""
        route = "/v1/chat/completions" if "chat" in api else "/v1/completions"
        out = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        flags = ["--apply_chat_template"] if "chat" in api else ["--batch_size", "4"]
        done = subprocess.run(
            [LM_EVAL, "--model", api, "--model_args",
             f"base_url=http://{servers.gateway.http_address}{route},model={self.MODEL.name},"
             f"num_concurrent={concurrent},max_retries=1,tokenizer_backend=remote,"
             f"max_length={MAX_CONTEXT_TOKENS}",
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
            self.assertEqual(len(samples[task]), self.num_documents)
        return json.loads(results.read_text())["results"], samples

    def check_all_ways(self, api, tasks):
        """Evaluates in every way and compares; returns the scores and the samples."""
        with self.start(num_workers=2) as servers:
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
            with self.start(ranks) as servers:
                check(self.evaluate(servers, api, tasks, concurrent=16), f"{ranks} ranks")
        return scores, samples

    def check_likelihoods(self, servers, model, choices, texts):
        """Compares samples of a task of choices and of one of whole texts with those of float64."""
        def score(context, continuation):
            rows = reference.log_softmax_rows(model.logits(context + continuation))
            return sum(rows[len(context) - 1 + i][id] for i, id in enumerate(continuation))

        def check(got, want):
            self.assertLess(abs(float(got) - want), 1e-3, (got, want))

        for sample in choices:
            for i in range(len(sample["doc"]["choices"])):
                arguments = sample["arguments"][f"gen_args_{i}"]
                context = servers.ids_of(arguments["arg_0"])
                whole = servers.ids_of(arguments["arg_0"] + arguments["arg_1"])
                self.assertEqual(whole[:len(context)], context)
                got, = sample["resps"][i]
                check(got[0], score(context, whole[len(context):]))
        # A text is scored after the beginning of a sequence or, as lm-eval takes 0 for none, its end.
        prefix = [model.config["bos_token_id"] or model.config["eos_token_id"]]
        for sample in texts:
            got, = sample["resps"][0]
            got = got[0] if isinstance(got, list) else got
            check(got, score(prefix, servers.ids_of(sample["doc"]["question"])))
