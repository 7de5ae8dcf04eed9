# SPDX-License-Identifier: Apache-2.0
"""machine_code_test.py BIN LIBRARY: what nvcc made of kernels/cuda. Needs no device.

Kernels meant for tensor cores have to contain their instructions, for every architecture, and keep
what they compute with in registers. Attention's loops over positions have to be short.
"""
import os
import re
import subprocess
import sys

ARCHITECTURES = {"sm_80", "sm_90a"}
# And how many of them there are.
TENSOR_CORE_KERNELS = {"TileAttentionKernel": 36, "FewRowsMatMulKernel": 32, "ExpertMatMulKernel": 32}
# Those of warpgroups, for sm_90a alone: in the loop and before it products are in one go, since the
# compiler puts a wait behind each one where it cannot follow what registers hold.
WARPGROUP_KERNELS = {"PromptAttentionKernel": 4}
# Instructions in the loop over positions, for heads of 128 on sm_90a: of decoding, what a
# multiprocessor does in the time that the keys and values of 64 positions take from memory is about
# 1,100 to 1,600 a warp with bf16 and half of that with bytes; a third or more of a loop is for soft
# caps, rows that do not lie at 16 bytes, the last positions and larger maxima, and is jumped over.
LOOPS = {
    "ShapeIttLi128ELi1ELi4ELi64E": 720,   # bf16, sequences of one row
    "ShapeIthLi128ELi1ELi4ELi64E": 1200,  # e4m3
    "ShapeIttLi128ELi4ELi1ELi64E": 1100,  # bf16, prompts
}


class Function:
    """The instructions of a function, each with its address."""

    def __init__(self):
        self.instructions = []

    def products(self) -> int:
        return sum(bool(re.search(r"\b(HMMA|HGMMA)\b", text)) for _, text in self.instructions)

    def waits_of_warpgroups(self) -> tuple:
        """How many products of warpgroups there are, and how many waits for them."""
        return tuple(sum(word in text for _, text in self.instructions)
                     for word in ("HGMMA", "WARPGROUP.DEPBAR"))

    def begins_before_memory(self) -> bool:
        """Whether it waits as BeginGrid does, always and before all that touches the device's memory
        or leaves the kernel, and lets the next grid begin."""
        for i, (_, text) in enumerate(self.instructions):
            if re.match(r"ACQBULK\b", text):
                return any(re.match(r"PREEXIT\b", later) for _, later in self.instructions[i:])
            if re.search(r"\b(LD|LDG|LDGSTS|ST|STG|ATOM|ATOMG|RED|REDG|TEX|TLD|SULD|SUST|UBLKCP|UTMA\w*"
                         r"|EXIT|RET|CALL|ACQBULK)\b", text):
                return False
        return False

    def shortest_loop_with_products(self) -> int:
        places = {address: i for i, (address, _) in enumerate(self.instructions)}
        lengths = []
        for i, (address, text) in enumerate(self.instructions):
            target = re.search(r"\bBRA\b.*?(0x[0-9a-f]+)", text)
            if not target or int(target[1], 16) > address:
                continue
            begin = places[int(target[1], 16)]
            if any("HMMA" in text for _, text in self.instructions[begin:i]):
                lengths.append(i + 1 - begin)
        return min(lengths, default=0)


def main() -> int:
    tools, library = sys.argv[1:]
    environment = dict(os.environ, PATH=tools + ":" + os.environ["PATH"])

    def cuobjdump(option: str) -> str:
        return subprocess.run([tools + "/cuobjdump", option, library], env=environment, check=True,
                              capture_output=True, text=True).stdout

    errors = []
    functions = {}  # by architecture and name
    architecture = name = ""
    for line in cuobjdump("-sass").splitlines():
        if found := re.match(r"arch = (\S+)", line):
            architecture = found[1]
        elif found := re.match(r"\s*Function : (\S+)", line):
            name = found[1]
            functions[architecture, name] = Function()
        elif found := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?);", line):
            functions[architecture, name].instructions.append((int(found[1], 16), found[2]))
    for architecture in ARCHITECTURES:
        for kernel, number in TENSOR_CORE_KERNELS.items():
            counts = [f.products() for (a, n), f in functions.items() if a == architecture and kernel in n]
            if len(counts) != number or 0 in counts:
                errors.append(f"{kernel} for {architecture}: instructions of tensor cores in "
                              f"{counts}, {number} kernels are expected")
    for kernel, number in WARPGROUP_KERNELS.items():
        # Scores and values of a tile in the loop, and of one each outside; a wait for each group.
        counts = sorted(f.waits_of_warpgroups() for (a, n), f in functions.items()
                        if a == "sm_90a" and kernel in n)
        if counts != sorted([(2 * (dim // 16 + 8), 4) for dim in (64, 128)] * (number // 2)):
            errors.append(f"{kernel}: products of warpgroups and waits for them are {counts}")
    for (architecture, name), function in functions.items():
        if architecture == "sm_90a" and not function.begins_before_memory():
            errors.append(f"{name} reads or writes memory before BeginGrid, or has none")
    for shape, most in LOOPS.items():
        loops = [f.shortest_loop_with_products() for (a, n), f in functions.items()
                 if a == "sm_90a" and "TileAttentionKernel" in n and shape in n]
        if len(loops) != 1 or not 0 < loops[0] <= most:
            errors.append(f"{shape}: loops of {loops} instructions, one of at most {most} is expected")

    # What newer devices make their code of.
    num_waits, name = 0, ""
    for line in cuobjdump("-ptx").splitlines():
        if found := re.search(r"\.entry (\w+)", line):
            if name:
                errors.append(f"the PTX of {name} does not wait")
            name = found[1]
        elif name and "griddepcontrol.wait;" in line:
            name = ""
            num_waits += 1
        elif name and re.search(r"\b((ld|st|atom|red)\S*\.global|(ld|st)\.(v\d\.)?[bfsu]\d|cp\.async"
                                r"|ret\b|exit\b)", line):
            errors.append(f"the PTX of {name} has {line.strip()} before it waits")
            name = ""
    if name or num_waits * len(ARCHITECTURES) != len(functions):
        errors.append(f"PTX of {num_waits} kernels waits, {len(functions)} are compiled, {name}")

    for line in cuobjdump("-res-usage").splitlines():
        if found := re.match(r"\s*Function (\S+):", line):
            name = found[1]
        elif found := re.search(r"REG:(\d+) STACK:(\d+) .*LOCAL:(\d+)", line):
            on_tensor_cores = any(k in name for k in [*TENSOR_CORE_KERNELS, *WARPGROUP_KERNELS])
            if on_tensor_cores and (found[2], found[3]) != ("0", "0"):
                errors.append(f"{name} keeps {found[2]} bytes on its stack, {found[3]} in local memory")
    for error in errors:
        print(error)
    print(f"{len(functions)} kernels, {len(errors)} errors")
    return 1 if errors or not functions else 0


sys.exit(main())
