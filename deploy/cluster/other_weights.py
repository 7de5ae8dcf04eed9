#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""other_weights.py FILE: reverses the rows of the largest matrix of a safetensors file, which makes it
another model of the same shape."""
import json
import math
import struct
import sys

with open(sys.argv[1], "r+b") as file:
    size, = struct.unpack("<Q", file.read(8))
    header = json.loads(file.read(size))
    matrices = [t for name, t in header.items() if name != "__metadata__" and len(t["shape"]) == 2]
    largest = max(matrices, key=lambda t: math.prod(t["shape"]))
    begin, end = (8 + size + offset for offset in largest["data_offsets"])
    row = (end - begin) // largest["shape"][0]
    file.seek(begin)
    data = file.read(end - begin)
    file.seek(begin)
    file.write(b"".join(data[i:i + row] for i in range(len(data) - row, -1, -row)))
