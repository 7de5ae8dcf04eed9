#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes of a model in bf16 one to measure speculation with, and a draft model that thinks much like it.

    build/venv/bin/python tests/bench/draft_pair.py MODEL OUT [--layers=2] [--halvings=4] [--mtp]

OUT/target is MODEL with what the layers from the --layers-th on add divided by 2**halvings, OUT/draft is
the same files with the first layers alone. With --mtp, MODEL has a module for multi-token prediction
(continuo-make-model --mtp), and OUT/target alone is made: what all layers add is divided, and the module
passes the next token's embedding on; with --halvings=8 the two mostly agree. How often the two agree is set by --halvings: no figure of real
models, which agree as they were trained to.
"""
import argparse
import contextlib
import json
import mmap
import pathlib
import shutil

import numpy

OUTPUTS = ("self_attn.o_proj.weight", "mlp.down_proj.weight", "linear_attn.out_proj.weight")


@contextlib.contextmanager
def tensors_of(path):
    """The names of the tensors of a file in bf16, and their values, which may be changed in place."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as bytes_:
        size = int.from_bytes(bytes_[:8], "little")
        values = {}
        for name, tensor in json.loads(bytes_[8:8 + size]).items():
            if name == "__metadata__":
                continue
            if tensor["dtype"] != "BF16":
                raise SystemExit(f"{name} is {tensor['dtype']}, not BF16")
            begin, end = tensor["data_offsets"]
            values[name] = numpy.frombuffer(bytes_, numpy.uint16, (end - begin) // 2,
                                            8 + size + begin).reshape(tensor["shape"])
        yield values
        values.clear()


def halve(values, halvings):
    """Takes `halvings` off the exponents."""
    small = ((values >> 7) & 0xFF) <= halvings
    values[:] = numpy.where(small, values & 0x8000, values - (halvings << 7))


def halve_layers(path, layers, halvings):
    """Divides what the layers from the `layers`-th on add, those of a module too."""
    with tensors_of(path) as tensors:
        for name in tensors:
            if name.endswith(OUTPUTS) and (layer_of(name) >= layers or name.startswith("mtp.")):
                halve(tensors[name], halvings)


def let_module_agree(path):
    """Lets the module of a file pass the next token's embedding on to the model's last norm."""
    one = 0x3F80
    with tensors_of(path) as tensors:
        join = tensors["mtp.fc.weight"]
        join[:] = 0
        numpy.fill_diagonal(join, one)
        tensors["mtp.pre_fc_norm_embedding.weight"][:] = 0  # stored minus one
        tensors["mtp.norm.weight"][:] = tensors["model.norm.weight"]
        del join


def layer_of(name):
    """The number of the layer that a tensor is part of; -1 for others."""
    parts = name.split(".")
    return int(parts[2]) if parts[:2] == ["model", "layers"] else -1


def drop_layers(model, layers):
    """Takes the layers from the `layers`-th on out of a model's folder; a file that is linked is copied."""
    for path in model.glob("*.safetensors"):
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        kept = json.dumps({n: t for n, t in header.items() if layer_of(n) < layers}).encode()
        path.unlink()
        path.write_bytes(len(kept).to_bytes(8, "little") + kept + data[8 + size:])
    index = model / "model.safetensors.index.json"
    if index.exists():
        values = json.loads(index.read_text())
        names = values["weight_map"]
        values["weight_map"] = {n: shard for n, shard in names.items() if layer_of(n) < layers}
        index.unlink()
        index.write_text(json.dumps(values, indent=1))
    config = json.loads((model / "config.json").read_text())
    config["num_hidden_layers"] = layers
    if "layer_types" in config:
        config["layer_types"] = config["layer_types"][:layers]
    (model / "config.json").unlink()
    (model / "config.json").write_text(json.dumps(config, indent=1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--halvings", type=int, default=4)
    parser.add_argument("--mtp", action="store_true")
    options = parser.parse_args()
    target, draft = options.out / "target", options.out / "draft"
    shutil.copytree(options.model, target)
    for path in target.glob("*.safetensors"):
        halve_layers(path, 0 if options.mtp else options.layers, options.halvings)
        if options.mtp:
            let_module_agree(path)
    if options.mtp:
        return
    shutil.copytree(target, draft, copy_function=lambda a, b: pathlib.Path(b).hardlink_to(a))
    drop_layers(draft, options.layers)


if __name__ == "__main__":
    main()
