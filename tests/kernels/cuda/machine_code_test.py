# SPDX-License-Identifier: Apache-2.0
"""machine_code_test.py BIN LIBRARY: what nvcc made of kernels/cuda. Needs no device.

Kernels meant for tensor cores have to contain their instructions, for every architecture, and keep
what they compute with in registers.
"""
import os
import re
import subprocess
import sys

ARCHITECTURES = {"sm_80", "sm_90a"}
# And how many of them there are.
TENSOR_CORE_KERNELS = {"TileAttentionKernel": 36, "QuantisedMatMulKernel": 16, "ExpertMatMulKernel": 32}


def main() -> int:
    tools, library = sys.argv[1:]
    environment = dict(os.environ, PATH=tools + ":" + os.environ["PATH"])

    def cuobjdump(option: str) -> str:
        return subprocess.run([tools + "/cuobjdump", option, library], env=environment, check=True,
                              capture_output=True, text=True).stdout

    errors = []
    products = {}  # (architecture, function) to instructions of tensor cores
    architecture = function = ""
    for line in cuobjdump("-sass").splitlines():
        if found := re.match(r"arch = (\S+)", line):
            architecture = found[1]
        elif found := re.match(r"\s*Function : (\S+)", line):
            function = found[1]
            products[architecture, function] = 0
        elif re.search(r"\b(HMMA|HGMMA)\b", line):
            products[architecture, function] += 1
    for architecture in ARCHITECTURES:
        for kernel, number in TENSOR_CORE_KERNELS.items():
            counts = [n for (a, f), n in products.items() if a == architecture and kernel in f]
            if len(counts) != number or 0 in counts:
                errors.append(f"{kernel} for {architecture}: instructions of tensor cores in "
                              f"{counts}, {number} kernels are expected")

    for line in cuobjdump("-res-usage").splitlines():
        if found := re.match(r"\s*Function (\S+):", line):
            function = found[1]
        elif found := re.search(r"REG:(\d+) STACK:(\d+) .*LOCAL:(\d+)", line):
            if any(k in function for k in TENSOR_CORE_KERNELS) and (found[2], found[3]) != ("0", "0"):
                errors.append(f"{function} keeps {found[2]} bytes on its stack, {found[3]} in local memory")
    for error in errors:
        print(error)
    print(f"{len(products)} kernels, {len(errors)} errors")
    return 1 if errors or not products else 0


sys.exit(main())
