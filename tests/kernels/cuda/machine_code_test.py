# SPDX-License-Identifier: Apache-2.0
"""machine_code_test.py BIN LIBRARY: looks into what nvcc made of kernels/cuda. Needs no device.

Every kernel keeps its data in registers, for every architecture, and a table shows how many it has. Kernels
that are meant for tensor cores have to contain their instructions. Attention's loops over positions have to
be short.
"""
import os
import re
import subprocess
import sys

ARCHITECTURES = {"sm_80", "sm_90a"}
# Kernels for tensor cores, and the number of their instances.
TENSOR_CORE_KERNELS = {"TileAttentionKernel": 18, "DecodeAttentionKernel": 30, "SmallMMatMulKernel": 29,
                       "ExpertMatMulKernel": 32}
# Kernels by wgmma, for sm_90a alone. Their products have to be issued together, in the loop and before
# it: the compiler puts a wait behind each one where it cannot follow what registers hold.
WGMMA_KERNELS = {"WgmmaAttentionKernel": 12}
# Most instructions in the loop over positions, for heads of 128 on sm_90a. While memory delivers the
# keys and values of a decode's slice, 16 positions of bf16 or 32 of bytes, a multiprocessor's four
# schedulers issue about 1,700 instructions. A third or more of a loop is for soft caps, chunks, rows that are
# not 16-byte aligned, the next sequence and its queries, the last positions and larger maxima, and is
# jumped over.
LOOPS = {
    "DecodeShapeIttLi128ELi1E": 770,   # bf16
    "DecodeShapeIthLi128ELi1E": 1370,  # e4m3
    "DecodeShapeItaLi128ELi1E": 1460,  # int8
    "5ShapeIttLi128ELi4ELi64E": 1200,  # bf16, prefill
}


class Function:
    """The instructions of a function, each with its address."""

    def __init__(self):
        self.instructions = []

    def products(self) -> int:
        return sum(bool(re.search(r"\b(HMMA|HGMMA)\b", text)) for _, text in self.instructions)

    def wgmma_counts(self) -> tuple:
        """The numbers of wgmma instructions and of waits for them."""
        return tuple(sum(word in text for _, text in self.instructions)
                     for word in ("HGMMA", "WARPGROUP.DEPBAR"))

    def is_serialised(self) -> bool:
        """Tells whether ptxas has serialised its wgmma instructions: where it cannot follow what registers hold
        or has too few, it puts a wait behind each one, and says so in a message that is no warning."""
        products, waits = self.wgmma_counts()
        return 2 * waits > products

    def waits_before_memory(self) -> bool:
        """Tells whether it always calls WaitForPreviousKernel before it touches device memory or
        leaves the kernel, and lets the next grid begin."""
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


class Resources:
    """The resources that a kernel takes, by cuobjdump -res-usage."""

    def __init__(self, architecture: str, name: str, line: str):
        self.architecture = architecture
        # Templates' arguments and a file's name stand around it.
        self.kernel = re.search(r"\d([A-Z][A-Za-z0-9]*?Kernel)", name)[1]
        number = {key: int(value) for key, value in re.findall(r"(\w+):(\d+)", line)}
        self.registers, self.stack, self.local = number["REG"], number["STACK"], number["LOCAL"]


def table(resources: list) -> list:
    """Lines with the number of instances of each kernel and the fewest and most registers of a thread."""
    lines = [f"{'kernel':<28} {'for':<7} {'instances':>9}  registers"]
    for kernel, architecture in sorted({(r.kernel, r.architecture) for r in resources}):
        registers = [r.registers for r in resources if (r.kernel, r.architecture) == (kernel, architecture)]
        lines.append(f"{kernel:<28} {architecture:<7} {len(registers):>9}  {min(registers)} to {max(registers)}")
    return lines


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
    for kernel, number in WGMMA_KERNELS.items():
        # The loop has the scores and values of a tile, and there is one of each outside. Each group has a wait.
        counts = sorted(f.wgmma_counts() for (a, n), f in functions.items()
                        if a == "sm_90a" and kernel in n)
        if counts != sorted([(2 * (dim // 16 + 8), 4) for dim in (64, 128)] * (number // 2)):
            errors.append(f"{kernel}: there are (wgmma, waits) {counts}")
    for (architecture, name), function in functions.items():
        if function.is_serialised():
            errors.append(f"{name}: ptxas has serialised its wgmma instructions")
        if architecture == "sm_90a" and not function.waits_before_memory():
            errors.append(f"{name} touches memory before WaitForPreviousKernel, or does not call it")
    for shape, most in LOOPS.items():
        loops = [f.shortest_loop_with_products() for (a, n), f in functions.items()
                 if a == "sm_90a" and "AttentionKernel" in n and shape in n]
        if len(loops) != 1 or not 0 < loops[0] <= most:
            errors.append(f"{shape}: loops of {loops} instructions, one of at most {most} is expected")

    # Newer devices compile the PTX.
    num_waits, name = 0, ""
    for line in cuobjdump("-ptx").splitlines():
        if found := re.search(r"\.entry (\w+)", line):
            if name:
                errors.append(f"the PTX of {name} does not wait")
            name = found[1]
        elif name and "griddepcontrol.wait;" in line:
            name = ""
            num_waits += 1
        elif name and re.search(r"\b((ld|st|atom|red)\S*\.global|(ld|st)\.(v\d\.)?[bfsu]\d|cp\.async(?!\.bulk\.prefetch)"
                                r"|ret\b|exit\b)", line):
            errors.append(f"the PTX of {name} has {line.strip()} before it waits")
            name = ""
    if name or num_waits * len(ARCHITECTURES) != len(functions):
        errors.append(f"PTX of {num_waits} kernels waits, {len(functions)} are compiled, {name}")

    # A thread that runs out of registers spills to its stack, where arrays with computed indices are, too.
    resources = []
    for line in cuobjdump("-res-usage").splitlines():
        if found := re.match(r"arch = (\S+)", line):
            architecture = found[1]
        elif found := re.match(r"\s*Function (\S+):", line):
            name = found[1]
        elif re.match(r"\s*REG:", line):
            resources.append(Resources(architecture, name, line))
            # Products of fp8 are for 9.0 alone (CudaMatMul::SupportsWeights).
            is_launched = architecture == "sm_90a" or "E4M3Matrix" not in name
            if is_launched and (resources[-1].stack > 0 or resources[-1].local > 0):
                errors.append(f"{name} for {architecture}: {resources[-1].stack} bytes on the stack, "
                              f"{resources[-1].local} in local memory")
    if len(resources) != len(functions) or {r.architecture for r in resources} != ARCHITECTURES:
        errors.append(f"{len(functions)} kernels are compiled, {len(resources)} have resources")
    print("\n".join(table(resources)))
    for error in errors:
        print(error)
    print(f"{len(functions)} kernels, {len(errors)} errors")
    return 1 if errors or not functions else 0


sys.exit(main())
