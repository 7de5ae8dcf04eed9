#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/run.sh, with small scripts in the place of programs, compilers and the device: what it runs
and in which order, what it calls a failure, and that results are whole however it ends."""
import itertools
import os
import pathlib
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
    "tests": ["gpu_device_test", "gpu_early_grids_test", "gpu_nccl_test", "gpu_model_test", "gpu_hf_test",
              "gpu_backend_test", "gpu_xid_test"],
    "bench": ["ops_bench", "score_tokens", "step_bench"],
    "bin": ["continuo-worker", "continuo-gateway", "continuo", "continuo-make-model"],
}
# Says that it ran, then does what $FAKE/NAME says.
FAKE = """#!/bin/bash
name=$(basename "$0")
echo "$name $*" >>"$FAKE/log"
if [ -f "$FAKE/$name" ]; then . "$FAKE/$name"; fi
"""
LISTENS = """echo '{"message":"listening","address":"127.0.0.1:1"}' >&2; exec tail -f /dev/null"""
BEHAVIOUR = {
    "gpu_backend_test": """if [ "$1" = --gtest_list_tests ]; then
  printf 'GpuBackendTest.\\n  Rows\\n  AttentionIsRight\\n'; fi""",
    "continuo-make-model": """out=${2#--out=}; mkdir "$out"; echo {} >"$out/config.json" """,
    "continuo-worker": LISTENS, "continuo-gateway": LISTENS,
    "nvidia-smi": """[[ $* != *compute_cap* ]] || echo 9.0""",
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
        shutil.copy(SOURCE / "tests/gpu/run.sh", self.root / "tests/gpu")
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
        self.assertIn((self.out / "summary.txt").read_text(), output)
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
        self.assertEqual(names[-1], "gpu_xid_test")
        bench = next(i for i, line in enumerate(ran) if line.startswith("ops_bench --json"))
        for earlier in ("gpu_backend_test", "continuo-make-model", "compute-sanitizer"):
            self.assertLess(max(i for i, n in enumerate(names) if n == earlier), bench)
        for line in ("gpu_backend_test --gtest_filter=GpuBackendTest.Rows",
                     "gpu_backend_test --gtest_filter=GpuBackendTest.AttentionIsRight"):
            self.assertEqual(ran.count(line), 1)
        results = self.results()
        for name in ("backend-Rows.txt", "sanitizer-racecheck.txt", "ops_bench.txt", "ops_bench-late-chains.txt",
                     "ops_bench-warpgroups.txt", "step-qwen3-0.6b-fp8.txt",
                     "step-qwen3-0.6b-late-grids.txt", "step-qwen3-0.6b-warpgroups.txt",
                     "serve-llama-3.1-8b-off-256.txt", "hf-llama-3.2-1b.txt", "gpu_xid_test.txt", "summary.txt",
                     "gpu-state.txt"):
            self.assertIn(name, results)
        one = [line for line in ran if line.startswith("continuo bench") and "--concurrency=1 " in line]
        self.assertTrue(all("--requests=16 " in line for line in one), one)

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
        output = self.run_stages("smoke", "ops", "serve:qwen3-0.6b", code=1, CONTINUO_GPU_SECONDS="2")
        self.assertIn("failed: gpu_nccl_test; left out: gpu_model_test gpu_hf_test ops_bench ops_bench-late-chains "
                      "ops_bench-warpgroups "
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

    def pack(self, code=0):
        for folder, names in BUILT.items():
            for name in names:
                self.program(self.root / "build/cuda" / folder / name)
        models = self.base / "data/models/hf_tiny_random"
        models.mkdir(parents=True)
        (models / "tiny.safetensors").write_text("weights")
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

    def test_a_stale_build_is_not_packed(self):
        self.does("ninja", """[[ $* != *-n* ]] || echo "[1/3] Building" """)
        self.assertIn("build/cuda is not up to date", self.pack(code=1))

    def test_more_than_travels_is_not_packed(self):
        with open(self.root / "large", "wb") as file:
            file.truncate(64 << 20)
        self.assertIn("more than 64 MiB", self.pack(code=1))


if __name__ == "__main__":
    unittest.main()
