#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the Python package `continuo`: the client library, and the programs for this platform.

    build/venv/bin/python deploy/python/build_wheel.py --out=DIR [--bin=build/release/bin]

With --bin the wheel brings continuo, continuo-gateway and continuo-worker of that folder, the
libraries that they load (auditwheel decides which the platform has) and the demo model. Without it
the wheel is the library alone, for any platform. --stage=DIR only lays out the sources. Times in
the wheel are $SOURCE_DATE_EPOCH's, so that the same sources give the same bytes.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAMS = ("continuo", "continuo-gateway", "continuo-worker")


def version():
    """The project's version, as CMakeLists.txt states it."""
    text = (ROOT / "CMakeLists.txt").read_text()
    return re.search(r"project\(continuo VERSION ([0-9.]+)", text).group(1)


def stage(out, programs=None):
    """Lays out the package's sources in `out`, which must not exist."""
    from grpc_tools import protoc
    shutil.copytree(HERE, out, ignore=shutil.ignore_patterns("__pycache__", "build_wheel.py"))
    for name in ("LICENSE", "THIRD_PARTY_NOTICES.md"):
        shutil.copy2(ROOT / name, out)
    (out / "VERSION").write_text(version() + "\n")
    well_known = pathlib.Path(protoc.__file__).parent / "_proto"
    arguments = [f"-I{ROOT / 'proto'}", f"-I{well_known}", f"--python_out={out}",
                 f"--pyi_out={out}", f"--grpc_python_out={out}",
                 str(ROOT / "proto/continuo/v1/inference.proto")]
    if protoc.main(["protoc", *arguments]) != 0:
        raise SystemExit("build_wheel.py: protoc failed")
    (out / "continuo/v1/__init__.py").touch()
    if programs is None:
        return
    (out / "continuo/bin").mkdir()
    for name in PROGRAMS:
        target = out / "continuo/bin" / name
        subprocess.run(["strip", "-o", target, programs / name], check=True)
        target.chmod(0o755)
    shutil.copytree(ROOT / "deploy/demo-model", out / "continuo/demo_model",
                    ignore=shutil.ignore_patterns("heldout*"))


def build(out, programs=None):
    """Returns the path of the wheel, a file in `out`."""
    environment = {"SOURCE_DATE_EPOCH": "315619200", **os.environ}
    python = [sys.executable, "-m"]
    with tempfile.TemporaryDirectory(prefix="continuo-wheel-") as work:
        sources, wheels = pathlib.Path(work, "sources"), pathlib.Path(work, "wheels")
        stage(sources, programs)
        subprocess.run([*python, "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
                        "--wheel-dir", wheels, sources], check=True, env=environment)
        wheel = next(wheels.glob("*.whl"))
        if programs is not None:
            machine = os.uname().machine
            subprocess.run([*python, "wheel", "tags", f"--platform-tag=linux_{machine}",
                            "--remove", wheel], check=True, env=environment,
                           stdout=subprocess.DEVNULL)
            wheel = next(wheels.glob("*.whl"))
            repaired = pathlib.Path(work, "repaired")
            subprocess.run([*python, "auditwheel", "repair", "--wheel-dir", repaired, wheel],
                           check=True, env={**environment, "PATH": os.pathsep.join(
                               [str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])})
            wheel = next(repaired.glob("*.whl"))
        out.mkdir(parents=True, exist_ok=True)
        return pathlib.Path(shutil.copy(wheel, out))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, help="folder for the wheel")
    parser.add_argument("--bin", type=pathlib.Path, help="folder of the programs")
    parser.add_argument("--stage", type=pathlib.Path, help="folder for the sources, a new one")
    flags = parser.parse_args()
    if (flags.out is None) == (flags.stage is None):
        parser.error("one of --out and --stage is needed")
    if flags.stage is not None:
        stage(flags.stage, flags.bin)
    else:
        print(build(flags.out, flags.bin))


if __name__ == "__main__":
    main()
