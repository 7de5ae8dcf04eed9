# SPDX-License-Identifier: Apache-2.0
"""Runs the programs that the package for this platform brings."""
import os
import pathlib
import sys

_HERE = pathlib.Path(__file__).resolve().parent
# Folder of the model that the project trains itself, small enough to be a part of the package.
DEMO_MODEL = _HERE / "demo_model"


def _run(name: str) -> None:
    program = _HERE / "bin" / name
    if not program.exists():
        sys.exit(f"{name}: this package of continuo has no programs for this platform")
    os.execv(program, [name, *sys.argv[1:]])


def client() -> None:
    _run("continuo")


def gateway() -> None:
    _run("continuo-gateway")


def worker() -> None:
    _run("continuo-worker")
