# SPDX-License-Identifier: Apache-2.0
"""Makes GGUF files of other types from one: by llama.cpp's llama-quantize where tests/bench/peers/setup.sh has
installed it, else by the `gguf` package, which makes those of PACKAGE_TYPES."""
import os
import pathlib
import subprocess

import gguf

ROOT = pathlib.Path(__file__).resolve().parents[3]
LLAMA = ROOT / "build/bench/llama"  # a root file system
PACKAGE_TYPES = ["F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "MXFP4"]


def llama_program(name):
    """The command of one of llama.cpp's programs; None where it is not installed."""
    path = LLAMA / "usr/bin" / name
    if not path.exists():
        return None
    loader = next(LLAMA.glob("lib64/ld-linux-*.so.2"), None) or next(LLAMA.glob("usr/lib64/ld-linux-*.so.2"))
    folders = sorted({str(library.parent) for pattern in ("libllama*.so*", "libggml*.so*", "libc.so.6", "libgomp.so*")
                      for library in LLAMA.glob(f"usr/lib/**/{pattern}")})
    return [str(loader), "--library-path", ":".join(folders), str(path)]


def by_package(source, out, kind):
    """Writes a file of one of PACKAGE_TYPES."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, reader.get_field("general.architecture").contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        value_type = field.types[0]
        item_type = field.types[-1] if value_type == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), value_type, sub_type=item_type)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(tensor.shape[::-1]).astype("float32")
        # As llama-quantize does, vectors stay f32, and so do matrices whose rows the type does not divide.
        own = gguf.GGMLQuantizationType[kind]
        if values.ndim == 1 or values.shape[-1] % gguf.GGML_QUANT_SIZES[own][0] != 0:
            own = gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(source, folder, kind):
    """Returns the path of a file of that type in `folder`; what is there already serves."""
    out = pathlib.Path(folder) / f"{pathlib.Path(source).name.split('.')[0]}.{kind}.gguf"
    if out.exists():
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_suffix(f".{os.getpid()}.partial")
    quantize = llama_program("llama-quantize")
    if kind in PACKAGE_TYPES and (quantize is None or kind == "MXFP4"):
        by_package(source, partial, kind)
    elif quantize is not None:
        done = subprocess.run([*quantize, "--allow-requantize", str(source), str(partial), kind, "2"],
                              capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"llama-quantize {kind}:\n{done.stderr[-2000:]}")
    else:
        raise RuntimeError(f"{kind} needs llama.cpp: tests/bench/peers/setup.sh llama.cpp")
    partial.rename(out)
    return out
