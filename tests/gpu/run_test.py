#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/run.sh, with small scripts in the place of programs, compilers and the device: what it runs
and in which order, what it calls a failure, and that results are whole however it ends."""
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# The folder of the build that each program comes from.
BUILT = {
    "tests": ["gpu_device_test", "gpu_pdl_test", "gpu_nccl_test", "gpu_model_test", "gpu_hf_test",
              "gpu_ops_test", "gpu_xid_test"],
    "bench": ["ops_bench", "score_tokens", "step_bench"],
    "bin": ["continuo-worker", "continuo-gateway", "continuo", "continuo-make-model"],
}
# Says that it ran, then does what $FAKE/NAME says.
FAKE = """#!/bin/bash
name=$(basename "$0")
echo "$name $*" >>"$FAKE/log"
if [ -f "$FAKE/$name" ]; then . "$FAKE/$name"; fi
"""
LISTENS = """echo '{"message":"listening","address":"%s"}' >&2; exec tail -f /dev/null"""
WORKER, GATEWAY = "127.0.0.1:1", "127.0.0.1:2"
# Tokens a second: 100 from the worker, 99 through the gateway.
REPORT = """rate=100; [[ $* != *--server=127.0.0.1:2* ]] || rate=99
for flag in "$@"; do [ "${flag#--json=}" = "$flag" ] || cat >"${flag#--json=}" <<END
{"config": {"concurrency": 64, "prompt_tokens": "1000", "output_tokens": "1000"},
 "requests": {"ok": 1, "rejected": 0, "failed": 0}, "tokens": {"cached_prompt": 0, "prompt": 8},
 "throughput": {"output_tokens_per_second": $rate}, "steady": {"output_tokens_per_second": 20000},
 "latency_seconds": {"inter_token": {"mean": 0.004}}}
END
done"""
# A step takes 1 s, and with --deterministic 2 s.
STEPS = """seconds=1; [[ $* != *--deterministic* ]] || seconds=2
for flag in "$@"; do [ "${flag#--json=}" = "$flag" ] ||
  echo '{"steps": [{"name": "decode/1", "seconds": '$seconds', "idle": 0.015, "rounds": 7,
    "steady_rounds": 7}]}' >"${flag#--json=}"; done"""
OPS = """for flag in "$@"; do [ "${flag#--json=}" = "$flag" ] || cat >"${flag#--json=}" <<END
{"device": "NVIDIA H200"}
{"op": "read of 4 GiB", "group": "ceilings", "gb_per_s": 4500, "rounds": 7, "steady_rounds": 7}
{"op": "8 x 1 at 64", "group": "decode", "of_ceiling": 0.91, "rival": "dense", "of_rival": 0.96, "rounds": 7, "steady_rounds": 7}
{"op": "MatMul", "group": "products", "of_ceiling": 0.7, "rival": "cuBLASLt", "of_rival": 0.99, "rounds": 7, "steady_rounds": 3}
END
done"""
BEHAVIOUR = {
    "gpu_ops_test": """if [ "$1" = --gtest_list_tests ]; then
  printf 'GpuDeviceTest.\\n  Rows\\n  AttentionIsRight\\n'; fi""",
    "continuo-make-model": """out=${2#--out=}; mkdir "$out"; echo {} >"$out/config.json" """,
    "continuo-worker": LISTENS % WORKER, "continuo-gateway": LISTENS % GATEWAY,
    "continuo": REPORT, "step_bench": STEPS, "ops_bench": OPS,
    "nvidia-smi": """[[ $* != *compute_cap* ]] || echo 9.0
[[ $* != *memory.total\ *nounits ]] || echo "${MEBIBYTES-143771}"
[ "$1" != -L ] || for i in $(seq "${DEVICES-1}"); do echo "GPU $i: NVIDIA H200"; done""",
    "compute-sanitizer": """while [ "${1#--}" != "$1" ]; do
  [ "$1" = --error-exitcode ] || [ "$1" = --tool ] && shift; shift; done; exec "$@" """,
    "python3": f"""echo "python3 LD_LIBRARY_PATH=${{LD_LIBRARY_PATH-unset}}" >>"$FAKE/log"
case "$*" in *torch* | *hf_scores*) ;; *) exec {sys.executable} "$@" ;; esac""",
    "ninja": """[[ $* != *-n* ]] || echo "ninja: no work to do." """,
    "strip": """[ "$1" != --strip-unneeded ] || shift; cp "$3" "$2" """, "ldd": "",
}


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.base = pathlib.Path(folder.name)
        self.root, self.fake, self.out = (self.base / n for n in ("root", "fake", "out"))
        self.path = self.base / "path"
        for each in (self.fake, self.out, self.path, self.root / "tests/gpu", self.root / "scripts"):
            each.mkdir(parents=True)
        for name in ("run.sh", "served.sh", "goals.py", "cost_model.py"):
            shutil.copy(SOURCE / "tests/gpu" / name, self.root / "tests/gpu")
        shutil.copy(SOURCE / "scripts/programs.sh", self.root / "scripts")
        (self.root / ".gitignore").write_text("build/\n")
        for tool in ("nvidia-smi", "compute-sanitizer", "python3", "ninja", "strip", "ldd"):
            self.program(self.path / tool)
        for name, text in BEHAVIOUR.items():
            self.does(name, text)
        self.environment = {**os.environ, "FAKE": str(self.fake), "CONTINUO_SHARED": str(self.base),
                            "PATH": f"{self.path}:{os.environ['PATH']}"}
        for name in ("OUT", "CONTINUO_GPU_SECONDS", "CONTINUO_BUILD", "LD_LIBRARY_PATH"):
            self.environment.pop(name, None)

    def program(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FAKE)
        path.chmod(0o755)

    def does(self, name, text):
        (self.fake / name).write_text(text)

    def archive(self):
        folder = self.base / "gpu"
        for name in itertools.chain(*BUILT.values()):
            self.program(folder / "bin" / name)
        (folder / "commit").write_text("abc\n")
        (self.root / "build").mkdir(exist_ok=True)
        with tarfile.open(self.root / "build/gpu.tar.xz", "w:xz") as archive:
            archive.add(folder, "gpu")

    def start(self, *arguments, **environment):
        return subprocess.Popen(["bash", "tests/gpu/run.sh", *arguments], cwd=self.root, text=True,
                                env={**self.environment, **environment}, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, start_new_session=True)

    def run_stages(self, *stages, code=0, **environment):
        self.archive()
        run = self.start(*stages, **{"OUT": str(self.out), **environment})
        output = run.communicate()[0]
        self.assertEqual(run.returncode, code, output)
        self.assertEqual(sorted(p.name for p in self.out.iterdir()), ["results.tar.gz", "summary.txt"])
        # Bash reports a step that was killed in between.
        told = re.sub(r"^tests/gpu/run\.sh: line .*\n", "", output, flags=re.MULTILINE)
        self.assertIn((self.out / "summary.txt").read_text(), told)
        return output

    def results(self):
        with tarfile.open(self.out / "results.tar.gz") as archive:
            return [name.split("/")[-1] for name in archive.getnames()]

    def ran(self):
        return (self.fake / "log").read_text().splitlines()

    def test_everything_is_done_and_the_xid_last(self):
        output = self.run_stages()
        self.assertIn("failed: none; left out: none", output)
        ran = self.ran()
        names = [line.split()[0] for line in ran]
        self.assertEqual([name for name in names if name != "python3"][-1], "gpu_xid_test")
        self.assertLess(max(i for i, n in enumerate(names) if n == "continuo-make-model"),
                        min(i for i, n in enumerate(names) if n == "continuo-worker"))
        # Stages, in order of weight; memcheck begins before the tests of ops that it is beside.
        processors = subprocess.run("nproc", capture_output=True, text=True, check=True).stdout.strip()
        def place(begin):
            return next(i for i, line in enumerate(ran) if line.startswith(begin))
        first = [place(begin) for begin in (
            "gpu_device_test", "compute-sanitizer --tool memcheck --error-exitcode 9",
            "gpu_ops_test --gtest_list_tests", "ops_bench --only=ceilings", "continuo-worker",
            "ops_bench --json", "compute-sanitizer --tool racecheck",
            "step_bench --model=build/gpu-models/llama-3.1-8b --device=cuda:0 "
            "--threads=%s --json=build/gpu-results/price" % processors)]
        self.assertEqual(first, sorted(first))
        for line in ("gpu_ops_test --gtest_filter=GpuDeviceTest.Rows",
                     "gpu_ops_test --gtest_filter=GpuDeviceTest.AttentionIsRight"):
            self.assertEqual(ran.count(line), 1)
        results = self.results()
        for name in ("ops-Rows.txt", "sanitizer-racecheck.txt", "ops_bench.txt", "ops_bench-no-pdl-chains.txt",
                     "ops_bench-no-wgmma-prefill.txt", "step-qwen3-0.6b-fp8.txt",
                     "step-qwen3-0.6b-no-pdl.txt", "step-qwen3-0.6b-no-wgmma-prefill.txt",
                     "serve-llama-3.1-8b-off-256.txt", "hf-llama-3.2-1b.txt", "gpu_xid_test.txt", "summary.txt",
                     "gpu-state.txt"):
            self.assertIn(name, results)
        self.assertIn("== ranks: one device: not run", output)
        benches = [line for line in ran if line.startswith("continuo bench")]
        seeds = [re.search(r"--seed=(\S+)", line)[1] for line in benches]
        self.assertEqual(len(set(seeds)), len(benches))
        self.assertEqual(json.loads((self.root / "build/gpu-results/step-qwen3-0.6b.json").read_text())
                         ["steps"][0]["name"], "decode/1")
        self.assertIn("$ build/gpu/bin/gpu_device_test", self.step_text("gpu_device_test"))
        self.assertIn("--deterministic=1", self.step_text("price-llama-3.1-8b-1-deterministic").splitlines()[0])
        for figure in ("93.8%", "96.0%", "20000/s", "1.5%", "1.00%", "decode/1 2.000"):
            self.assertIn(figure, output)

    def step_text(self, name):
        return (self.root / f"build/gpu-results/{name}.txt").read_text()

    def ran_by(self, program):
        return [line for line in self.ran() if line.startswith(program)]

    def test_goals_are_served_by_one_worker_that_takes_a_thousand_prompts(self):
        output = self.run_stages("models:llama-3.1-8b,llama-3.2-1b", "goals")
        worker = self.ran_by("continuo-worker")[0]
        for flag in ("--weights=fp8", "--kv_dtype=fp8", "--max_running=1024", "--speculation=off"):
            self.assertIn(flag, worker.split())
        tokens = int(re.search(r"--max_queued_tokens=(\d+)", worker)[1])
        self.assertGreater(tokens, 1024 * 1000)  # all prompts wait at once in the beginning
        context = int(re.search(r"--max_context_tokens=(\d+)", worker)[1])
        self.assertGreaterEqual(context, 128 + 2048)
        benches = self.ran_by("continuo bench")
        for bench, streams, prompt, output_tokens in zip(benches, (960, 896), (1000, 128), (1000, 2048)):
            self.assertLess(streams * (prompt + output_tokens) * 67584, 143771 * 2**20 - 14e9)
            for flag in (f"--concurrency={streams}", f"--requests={2 * streams}", f"--server={GATEWAY}",
                         f"--prompt_tokens={prompt}", f"--output_tokens={output_tokens}", "--warmup=0"):
                self.assertIn(flag, bench.split())
        self.assertIn("llama-3.1-8b fp8, 1000/1000", output)
        self.assertIn("met     in between; whole run 99;", output)
        self.assertRegex(output, r"single stream, llama-3.2-1b bf16 +250.0/s +goal >= 1500/s +missed")

    def test_goals_are_for_as_many_streams_as_the_device_holds(self):
        self.run_stages("models:llama-3.1-8b,llama-3.2-1b", "goals", MEBIBYTES="81559")
        self.assertEqual([re.search(r"--concurrency=(\d+)", bench)[1] for bench in self.ran_by("continuo bench")[:2]],
                         ["512", "448"])

    def test_the_gateway_takes_turns_with_the_worker_behind_it(self):
        output = self.run_stages("models:llama-3.1-8b,llama-3.2-1b", "goals")
        turns = [line for line in self.ran_by("continuo bench") if "goals-gateway-" in line]
        servers = [re.search(r"--server=(\S+)", line)[1] for line in turns]
        self.assertEqual(servers, [GATEWAY, WORKER] * 7)
        without = [re.sub(r"--(server|seed|json)=\S+", "", line) for line in turns]
        self.assertEqual(len(set(without)), 1)
        self.assertRegex(output, r"lost through the gateway +1.00% +goal <= 1%")
        self.does("continuo", REPORT.replace("rate=99", "rate=98"))
        self.assertRegex(self.run_again("goals"), r"lost through the gateway +2.00% +goal <= 1% +missed")

    def test_over_failed_requests_there_is_no_verdict(self):
        self.run_stages("models:llama-3.1-8b,llama-3.2-1b", "goals")
        for report, code, why in (
                (REPORT.replace('"failed": 0', '"failed": 3') + "\nexit 1", 1, "the bench failed"),
                (REPORT.replace('"failed": 0', '"failed": 3'), 0, "3 requests failed"),
                (REPORT.replace('"rejected": 0', '"rejected": 2'), 0, "2 requests rejected")):
            self.does("continuo", report)
            output = self.run_again("goals", code=code)
            for what in ("llama-3.1-8b fp8, 1000/1000", "llama-3.1-8b fp8, 128/2048", "lost through the gateway",
                         "single stream, llama-3.1-8b bf16"):
                self.assertRegex(output, rf"{what} +not measured: +goal \S+ \S+ +{why}")

    def test_a_call_that_ends_takes_only_what_it_cut_off(self):
        self.does("continuo", REPORT + "\n[[ $* != *goals-gateway-5-* && $* != *price* ]] || exit 1")
        output = self.run_stages("models:llama-3.1-8b,llama-3.2-1b", "goals", "variants:llama-3.1-8b", code=1)
        self.assertRegex(output, r"lost through the gateway +1.00% +goal <= 1% +(met|missed) +medians of 4 in turn")
        self.assertRegex(output, r"device idle between steps, of wall +1.5% +goal <= 2% +met")
        self.assertIn("decode/1 2.000\n", output)  # of steps alone

    def run_again(self, *stages, **options):
        shutil.rmtree(self.out)
        self.out.mkdir()
        return self.run_stages(*stages, **options)

    def test_what_was_not_measured_is_said(self):
        output = self.run_stages("ops")
        self.assertRegex(output, "lost through the gateway +not measured")
        self.assertRegex(output, "device idle between steps, of wall +not measured")

    def test_over_failed_or_unsteady_figures_there_is_no_verdict(self):
        failed = OPS.replace("END\ndone", '{"op": "64 x 1", "group": "decode", "failed": true}\nEND\ndone')
        unsteady = OPS.replace('0.96, "rounds": 7, "steady_rounds": 7', '0.96, "rounds": 21, "steady_rounds": 2')
        for rows, why in ((failed, "64 x 1 failed"), (unsteady, "8 x 1 at 64 is unsteady, 2 of 21 rounds")):
            self.does("ops_bench", rows)
            output = self.run_again("ops")
            self.assertRegex(output, rf"attention, of the bandwidth +not measured: +goal >= 90% +{why}")
            self.assertRegex(output, r"of the best of cuBLASLt +99.0% +goal >= 95% +met")
        self.does("ops_bench", OPS + "\n[[ $* == *--only* || $* == *--list* ]] || kill -9 $$")
        output = self.run_again("ops", code=1)
        self.assertRegex(output, r"of the best of cuBLASLt +not measured: +goal >= 95% +ops_bench.json failed")
        self.assertRegex(output, r"reading kernel, of the datasheet's bandwidth +93.8% +goal >= 92% +met")

    def test_over_failed_or_unsteady_steps_there_is_no_verdict(self):
        self.run_stages("steps:qwen3-0.6b")
        self.does("step_bench", STEPS.replace('"steady_rounds": 7', '"steady_rounds": 2'))
        self.assertRegex(self.run_again("steps:qwen3-0.6b"),
                         "idle between steps, of wall +not measured: +goal <= 2% +step-.* is unsteady, 2 of 7 rounds")
        self.does("step_bench", STEPS + "\n[[ $* != *kv_dtype=fp8* ]] || exit 1")
        self.assertRegex(self.run_again("steps:qwen3-0.6b", code=1),
                         "idle between steps, of wall +not measured: +goal <= 2% +step-qwen3-0.6b-kv-fp8 failed")

    def test_calls_of_one_build_add_to_each_others_figures(self):
        self.run_stages("models:llama-3.1-8b,llama-3.2-1b", "goals")
        self.assertIn("96.0%", self.run_again("ops"))
        self.assertRegex(self.run_again("ops"), "lost through the gateway +1.00%")
        (self.root / "build/gpu-results/commit").write_text("another\n")
        self.assertRegex(self.run_again("ops"), "lost through the gateway +not measured")

    def test_figures_that_cannot_be_read_are_a_failure(self):
        self.does("ops_bench", 'for flag in "$@"; do [ "${flag#--json=}" = "$flag" ] || echo "{" >"${flag#--json=}"; done')
        self.assertIn("failed: goals.py", self.run_stages("ops", code=1))

    def test_without_fp8_its_goals_are_left_out(self):
        self.does("nvidia-smi", "")
        output = self.run_stages("models:llama-3.1-8b,llama-3.2-1b", "goals", code=2)
        self.assertIn("left out: goals-fp8", output)
        self.assertIn("single stream, llama-3.1-8b bf16", output)

    def test_a_hopper_is_found_however_much_the_driver_says(self):
        self.does("nvidia-smi", BEHAVIOUR["nvidia-smi"] + "\n[[ $* != *compute_cap* ]] || seq 20000")
        self.run_stages("steps:qwen3-0.6b")
        self.assertIn("step-qwen3-0.6b-fp8.txt", self.results())

    def test_the_price_of_deterministic_is_of_runs_next_to_each_other(self):
        output = self.run_stages("models:llama-3.1-8b", "variants:llama-3.1-8b")
        self.assertEqual([re.search(r"--json=\S+/(\S+)\.json", line)[1] for line in self.ran_by("step_bench")[:4]],
                         [f"price-llama-3.1-8b-{n}-{way}" for n in (1, 2) for way in ("as-is", "deterministic")])
        self.assertEqual(["--deterministic" in line.split() for line in self.ran_by("continuo-worker")],
                         [False, True])
        self.assertIn("decode/1 2.000, served, 64 streams 1.000", output)

    def test_ranks_are_as_many_as_there_are_devices(self):
        self.run_stages("models:qwen3-0.6b", "ranks:qwen3-0.6b", DEVICES="4")
        for program in ("step_bench", "continuo-worker"):
            self.assertEqual([re.search(r"--device=(\S+)", line)[1] for line in self.ran_by(program)],
                             ["cuda:0,1", "cuda:0,1,2,3"])
        self.assertEqual(len(self.ran_by("gpu_nccl_test")), 1)

    def test_a_step_that_is_lost_ends_the_wait(self):
        self.does("gpu_ops_test", BEHAVIOUR["gpu_ops_test"] + """
if [[ $* = *Rows ]]; then kill -9 "$(ps -o ppid= -p $PPID | tr -d ' ')"; fi""")
        output = self.run_stages("tests", code=1)
        self.assertIn("== ops-Rows: lost", output)
        self.assertIn("failed: ops-Rows; left out: none", output)

    def test_a_stage_is_done_for_the_shapes_that_are_named(self):
        self.run_stages("steps:qwen3-0.6b")
        self.assertEqual({line.split()[0] for line in self.ran() if "bench" in line},
                         {"ops_bench", "step_bench"})
        made = [line for line in self.ran() if line.startswith("continuo-make-model")]
        self.assertEqual(len(made), 1)
        self.assertIn("--shape=qwen3-0.6b", made[0])

    def test_a_stage_that_is_not_there_is_refused(self):
        run = self.start("smok")
        self.assertIn("there is no stage smok", run.communicate()[0])
        self.assertEqual(run.returncode, 2)

    def test_a_failure_is_told_and_the_others_go_on(self):
        self.does("gpu_nccl_test", "echo broken; exit 3")
        output = self.run_stages("smoke", "ops", code=1)
        self.assertIn("== gpu_nccl_test: exit code 3", output)
        self.assertIn("broken", output)
        self.assertIn("failed: gpu_nccl_test; left out: none", output)
        self.assertIn("== ops_bench: ok", output)

    def test_a_skipped_test_is_a_failure_but_of_the_xid(self):
        for name in ("gpu_hf_test", "gpu_xid_test"):
            self.does(name, "echo '[  SKIPPED ] Hf.Test'")
        output = self.run_stages("smoke", "xid", code=1)
        self.assertIn("failed: gpu_hf_test; left out: none", output)

    def test_one_of_many_skipped_tests_is_enough(self):
        self.does("gpu_hf_test", "yes '[  SKIPPED ] Hf.Test' | head -n 9999")  # more than a pipe holds
        self.assertIn("failed: gpu_hf_test; left out: none", self.run_stages("smoke", code=1))

    def test_tests_that_are_not_listed_are_a_failure(self):
        for text in ("echo no library; exit 127", ""):
            self.does("gpu_ops_test", text)
            self.assertIn("failed: list-tests; left out: none", self.run_again("tests", code=1))

    def test_one_device_is_enough(self):
        self.does("gpu_model_test", "echo '[  SKIPPED ] GpuTwoDevicesTest.Test (0 ms)'; "
                  "echo '[  SKIPPED ] 1 test, listed below:'; echo '[  SKIPPED ] GpuTwoDevicesTest.Test'")
        self.assertIn("failed: none", self.run_stages("smoke"))

    def test_without_a_device_nothing_is_run(self):
        self.does("ops_bench", "echo no driver; exit 1")
        output = self.run_stages("smoke", code=1)
        self.assertIn("no driver", output)
        self.assertNotIn("gpu_device_test", output)

    def test_what_gets_no_time_is_named(self):
        self.does("gpu_nccl_test", "tail -f /dev/null")
        output = self.run_stages("smoke", "ops", "serve:qwen3-0.6b", code=1, CONTINUO_GPU_SECONDS="10")
        self.assertIn("failed: gpu_nccl_test; left out: gpu_model_test gpu_hf_test ops_bench ops_bench-no-pdl-chains "
                      "ops_bench-no-wgmma-prefill "
                      "make-qwen3-0.6b serve of qwen3-0.6b", output)
        self.assertIn("== gpu_nccl_test: cut off", output)

    def test_results_are_there_when_it_is_killed(self):
        ready = self.base / "ready"
        os.mkfifo(ready)
        self.does("gpu_nccl_test", f"echo $PPID >{ready}; tail -f /dev/null")
        self.archive()
        run = self.start("smoke", OUT=str(self.out))
        self.addCleanup(run.stdout.close)
        step = int(ready.read_text())  # once the test runs
        os.kill(run.pid, signal.SIGKILL)
        os.kill(step, signal.SIGTERM)
        run.wait()
        self.assertIn("gpu_device_test.txt", self.results())
        self.assertIn("== gpu_device_test: ok", (self.out / "summary.txt").read_text())

    def test_a_half_made_model_is_none(self):
        whole = BEHAVIOUR["continuo-make-model"]
        self.does("continuo-make-model", whole + "; exit 1")
        output = self.run_stages("models:qwen3-0.6b", "steps:qwen3-0.6b", code=1)
        self.assertIn("left out: steps of qwen3-0.6b", output)
        self.assertFalse(any(line.startswith("step_bench") for line in self.ran()))
        self.does("continuo-make-model", whole)
        shutil.rmtree(self.out)
        self.out.mkdir()
        self.run_stages("models:qwen3-0.6b", "steps:qwen3-0.6b")

    def test_a_server_that_does_not_start_is_a_failure(self):
        self.does("continuo-gateway", "echo no port >&2; exit 1")
        output = self.run_stages("serve:qwen3-0.6b", code=1)
        self.assertIn("no port", output)
        self.assertIn("failed: serve-qwen3-0.6b-off serve-qwen3-0.6b-lookup", output)

    def test_a_sanitizer_that_the_machine_refuses_is_one_failure(self):
        self.does("compute-sanitizer", "echo Device not supported; exit 1")
        output = self.run_stages("memcheck", "sanitize", code=1)
        self.assertIn("failed: sanitizer-trial; left out: none", output)

    def test_python_finds_the_libraries_of_the_machine(self):
        self.run_stages("hf:qwen3-0.6b", LD_LIBRARY_PATH="/driver")
        self.assertEqual({line for line in self.ran() if line.startswith("python3 LD_")},
                         {"python3 LD_LIBRARY_PATH=/driver"})

    def test_xz_may_be_missing(self):
        tools = self.base / "tools"
        tools.mkdir()
        for folder in ("/bin", "/usr/bin"):
            for tool in pathlib.Path(folder).iterdir():
                if tool.name != "xz" and not (tools / tool.name).exists():
                    (tools / tool.name).symlink_to(tool)
        self.run_stages("ops", PATH=f"{self.path}:{tools}")

    def build(self):
        for folder, names in BUILT.items():
            for name in names:
                self.program(self.root / "build/cuda" / folder / name)
        models = self.base / "data/models/hf_tiny_random"
        models.mkdir(parents=True)
        (models / "tiny.safetensors").write_text("weights")

    def pack(self, code=0):
        self.build()
        git = ["git", "-c", "user.name=x", "-c", "user.email=x@x.example"]
        for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
            subprocess.run([*git, *command], cwd=self.root, check=True)
        (self.root / "build/gpu.tar.xz").write_text("an older one")
        run = self.start("pack")
        output = run.communicate()[0]
        self.assertEqual(run.returncode, code, output)
        self.assertEqual((self.root / "build/gpu.tar.xz").exists(), code == 0)
        return output

    def test_what_is_packed_runs(self):
        self.pack()
        with tarfile.open(self.root / "build/gpu.tar.xz") as archive:
            self.assertEqual(archive.extractfile(
                "gpu/shared/data/models/hf_tiny_random/tiny.safetensors").read(), b"weights")
        shutil.rmtree(self.root / "build/gpu")
        self.does("gpu_hf_test", 'cat "$CONTINUO_SHARED/data/models/hf_tiny_random/tiny.safetensors"')
        del self.environment["CONTINUO_SHARED"]
        run = self.start("smoke")
        output = run.communicate()[0]
        self.assertEqual(run.returncode, 0, output)
        self.assertIn("weights", output)

    def test_without_an_archive_a_build_is_run(self):
        self.build()
        with open(self.root / "large", "wb") as file:  # nothing travels
            file.truncate(64 << 20)
        run = self.start("smoke", OUT=str(self.out))
        output = run.communicate()[0]
        self.assertEqual(run.returncode, 0, output)
        self.assertIn("== gpu_hf_test: ok", output)
        self.assertFalse((self.root / "build/gpu.tar.xz").exists())

    def test_a_stale_build_is_not_run(self):
        self.build()
        self.does("ninja", """[[ $* != *-n* ]] || echo "[1/3] Building" """)
        run = self.start("smoke")
        self.assertIn("build/cuda is not up to date", run.communicate()[0])
        self.assertEqual(run.returncode, 1)

    def test_without_an_archive_or_a_build_nothing_is_run(self):
        run = self.start("smoke")
        self.assertIn("build/gpu.tar.xz is missing", run.communicate()[0])
        self.assertEqual(run.returncode, 1)

    def test_a_stale_build_is_not_packed(self):
        self.does("ninja", """[[ $* != *-n* ]] || echo "[1/3] Building" """)
        self.assertIn("build/cuda is not up to date", self.pack(code=1))

    def test_more_than_travels_is_not_packed(self):
        with open(self.root / "large", "wb") as file:
            file.truncate(64 << 20)
        self.assertIn("more than 64 MiB", self.pack(code=1))


if __name__ == "__main__":
    unittest.main()
