#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes goldens/: a small checkpoint of each quantised format, with the values that the format's own tool gives.

  quantised_goldens.py --autoawq=DIR --gptqmodel=DIR

It needs torch, transformers 5 and compressed-tensors 0.20 (with loguru and psutil), and the unpacked sources of autoawq
0.2 and gptqmodel 7, of which it runs the functions that dequantise. A case is a folder with config.json and
model.safetensors; there a tensor "expected.X" has the values of the module X, in the type that the tool gives them.
"""
import argparse
import ast
import importlib.util
import json
import pathlib
import shutil
import types

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.entrypoints.convert import FP8BlockDequantizer
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

OUT = pathlib.Path(__file__).parent / "goldens"
MODULE = "model.layers.0.mlp.up_proj"
DRAW = torch.Generator().manual_seed(34)


def randint(low, high, *shape, dtype=torch.int32):
    return torch.randint(low, high, shape, generator=DRAW).to(dtype)


def uniform(low, high, *shape, dtype=torch.float32):
    return (torch.rand(shape, generator=DRAW) * (high - low) + low).to(dtype)


def float8(*shape):
    """Every byte but those that are no number."""
    bits = randint(0, 254, *shape)
    return (bits + (bits >= 127)).to(torch.uint8).view(torch.float8_e4m3fn)


def write(case, quantisation, tensors, expected):
    folder = OUT / case
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"quantization_config": quantisation}, indent=1) + "\n")
    tensors |= {f"expected.{name}": values for name, values in expected.items()}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")


def of_module(state, module=MODULE):
    return {f"{module}.{name}": tensor for name, tensor in state.items()}


def fp8_cases():
    config = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
    own = Fp8Dequantize(None)
    # Blocks that reach over the edges: the tool of compressed-tensors pads them.
    weight, scale = float8(40, 72), uniform(1e-4, 1e-2, 3, 3)
    padding = FP8BlockDequantizer(weight_block_size=(16, 32), dtype=torch.float32)
    expected = padding._create_dequantized_weight(weight, scale)
    whole = own._dequantize_one(weight[:32, :64], scale[:2, :2])
    assert torch.equal(expected[:32, :64], whole)
    other, other_scale = float8(32, 64), uniform(1e-4, 1e-2, 2, 2, dtype=torch.bfloat16)
    write("fp8_block", config | {"weight_block_size": [16, 32], "modules_to_not_convert": ["lm_head"]},
          of_module({"weight": weight, "weight_scale_inv": scale})
          | of_module({"weight": other, "weight_scale_inv": other_scale}, "other"),
          {MODULE: expected, "other": own._dequantize_one(other, other_scale)})

    config |= {"activation_scheme": "static", "weight_block_size": None}
    weight, scale = float8(24, 40), uniform(1e-4, 1e-2, dtype=torch.bfloat16)
    write("fp8_tensor", config,
          of_module({"weight": weight, "weight_scale_inv": scale, "activation_scale": torch.tensor(0.5)}),
          {MODULE: own._dequantize_one(weight, scale.reshape(1, 1))})
    weight, scale = float8(24, 40), uniform(1e-4, 1e-2, 24, 1)
    write("fp8_channel", config, of_module({"weight": weight, "weight_scale": scale}),
          {MODULE: own._dequantize_one(weight, scale)})


def tools_config(formats):
    """config.json's part, with a group for each scheme."""
    groups = {f"group_{i}": {"targets": targets, "weights": scheme.weights.model_dump(mode="json"), "format": form}
              for i, (targets, scheme, form) in enumerate(formats)}
    names = {form for _, _, form in formats}
    return {"quant_method": "compressed-tensors", "quantization_status": "compressed", "ignore": ["lm_head"],
            "format": names.pop() if len(names) == 1 else "mixed-precision", "config_groups": groups}


def compressed(form, args, shape, scale_shape, scale_type=torch.bfloat16, **more):
    """A module that the tool has compressed, and the values that it gives back."""
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))
    limit = 2 ** (args["num_bits"] - 1)
    scale = uniform(0.5, 2, *scale_shape) / limit
    state = {"weight": uniform(-1, 1, *shape), "weight_scale": scale.to(scale_type)}
    if not scheme.weights.symmetric:
        state["weight_zero_point"] = randint(-limit, limit, *scale_shape, dtype=torch.int8)
    state |= more
    tool = BaseCompressor.get_value_from_registry(form)
    packed = tool.compress(state, scheme)
    values = tool.decompress(packed, scheme)["weight"]
    return scheme, packed, values


def compressed_tensors_cases():
    group = {"num_bits": 4, "strategy": "group", "group_size": 32, "type": "int"}
    cases = {  # format, arguments, shape, shape of scales, their type
        "ct_int4_group": ("pack-quantized", group, (20, 96), (20, 3), torch.bfloat16),
        "ct_int4_zeros": ("pack-quantized", group | {"symmetric": False}, (20, 96), (20, 3), torch.float16),
        "ct_int4_channel": ("pack-quantized", {"num_bits": 4, "strategy": "channel"}, (12, 44), (12, 1), torch.float32),
        "ct_int8_zeros": ("pack-quantized", {"num_bits": 8, "strategy": "channel", "symmetric": False}, (10, 42), (10, 1),
                          torch.bfloat16),
        "ct_int8_tensor": ("pack-quantized", {"num_bits": 8, "strategy": "tensor"}, (8, 40), (1,), torch.bfloat16),
        "ct_int": ("int-quantized", {"num_bits": 8, "strategy": "channel"}, (16, 40), (16, 1), torch.bfloat16),
        "ct_int_zeros": ("int-quantized", {"num_bits": 8, "strategy": "tensor", "symmetric": False}, (16, 40), (1,),
                         torch.float32),
        "ct_float_channel": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}, (16, 40), (16, 1),
                             torch.bfloat16),
        "ct_float_tensor": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "tensor"}, (16, 40), (1,),
                            torch.float16),
        "ct_float_block": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "block",
                                               "block_structure": [16, 32]}, (24, 72), (2, 3), torch.float32),
    }
    for case, (form, args, shape, scales, kind) in cases.items():
        scheme, state, values = compressed(form, args, shape, scales, kind)
        write(case, tools_config([(["Linear"], scheme, form)]), of_module(state), {MODULE: values})

    fours = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
    scheme, state, values = compressed("nvfp4-pack-quantized", fours, (12, 64), (12, 4),
                                       weight_scale=uniform(8, 400, 12, 4, dtype=torch.float8_e4m3fn).float(),
                                       weight_global_scale=torch.tensor([1234.5]))
    state["input_global_scale"] = torch.tensor([17.0])
    write("ct_nvfp4", tools_config([(["Linear"], scheme, "nvfp4-pack-quantized")]), of_module(state), {MODULE: values})
    scheme, state, values = compressed("mxfp4-pack-quantized", fours | {"strategy": "group", "group_size": 32}, (12, 64),
                                       (12, 2), weight_scale=2.0 ** randint(-9, 3, 12, 2))
    write("ct_mxfp4", tools_config([(["Linear"], scheme, "mxfp4-pack-quantized")]), of_module(state), {MODULE: values})

    # Columns whose groups are not in order. The tool no longer writes such files; their values are those of the
    # sorted columns.
    scheme, state, values = compressed("pack-quantized", group, (8, 64), (8, 2))
    order = torch.randperm(64, generator=DRAW)
    unpacked = torch.stack([state["weight_packed"] >> shift & 15 for shift in range(0, 32, 4)], -1).reshape(8, 64)
    assert torch.equal(dequantize((unpacked - 8).to(torch.int8), state["weight_scale"], args=scheme.weights), values)
    places = torch.argsort(order)
    mixed = unpacked[:, places].reshape(8, 8, 8).to(torch.int64)
    words = sum(mixed[..., i] << 4 * i for i in range(8))
    state["weight_packed"] = (words & 0xffffffff).to(torch.uint32).view(torch.int32)
    state["weight_g_idx"] = (places // 32).to(torch.int32)
    write("ct_int4_order", tools_config([(["Linear"], scheme, "pack-quantized")]), of_module(state),
          {MODULE: values[:, places]})

    # Schemes of groups: the most specific target holds.
    formats, tensors, expected = [], {}, {}
    for name, target, (form, args, shape, scales, kind) in (
            ("model.layers.0.mlp.down_proj", "model.layers.0.mlp.down_proj", cases["ct_int8_zeros"]),
            ("model.layers.1.mlp.down_proj", "re:.*down_proj", cases["ct_int4_zeros"]),
            ("model.layers.1.self_attn.q_proj", "Linear", cases["ct_float_channel"])):
        scheme, state, values = compressed(form, args, shape, scales, kind)
        formats.insert(0, ([target], scheme, form))
        tensors |= of_module(state, name)
        expected[name] = values
    write("ct_groups", tools_config(formats), tensors, expected)


def words_of(columns, bits, order=None):
    """Packs the last dimension, of unsigned numbers, into words."""
    per_word = 32 // bits
    parts = columns.to(torch.int64).reshape(*columns.shape[:-1], -1, per_word)
    words = sum(parts[..., order[i] if order else i] << bits * i for i in range(per_word))
    return (words & 0xffffffff).to(torch.uint32).view(torch.int32)


def awq_case(folder):
    path = folder / "awq/utils/packing_utils.py"
    spec = importlib.util.spec_from_file_location("packing_utils", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    codes, zeros = randint(0, 16, 96, 24), randint(0, 16, 3, 24)
    scales = uniform(0.01, 0.1, 3, 24, dtype=torch.float16)
    words, zero_words = words_of(codes, 4, tool.AWQ_ORDER), words_of(zeros, 4, tool.AWQ_ORDER)
    values = tool.dequantize_gemm(words, zero_words, scales, 4, 32)
    assert torch.equal(values, (codes - zeros.repeat_interleave(32, 0)).to(torch.int8) * scales.repeat_interleave(32, 0))
    write("awq", {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm",
                  "modules_to_not_convert": ["gate"]},
          of_module({"qweight": words, "qzeros": zero_words, "scales": scales}), {MODULE: values.T})


def functions_of(path, names):
    """Functions and methods of a source, without what it imports."""
    found = [node for node in ast.walk(ast.parse(path.read_text()))
             if isinstance(node, ast.FunctionDef) and node.name in names]
    assert len(found) == len(names), names
    for node in found:
        for argument in node.args.args + node.args.kwonlyargs:
            argument.annotation = None
        node.decorator_list, node.returns = [], None
    log = types.SimpleNamespace(info=types.SimpleNamespace(once=print))
    scope = {"t": torch, "torch": torch, "BaseQuantLinear": object, "log": log}
    exec(compile(ast.Module(found, []), str(path), "exec"), scope)
    return [scope[name] for name in names]


def gptq_cases(folder):
    _, dequantize_weight, from_codes = functions_of(
        folder / "gptqmodel/nn_modules/qlinear/__init__.py",
        ["_torch_right_shift", "dequantize_weight", "_dequantize_from_codes"])
    to_v2, = functions_of(folder / "gptqmodel/utils/model.py", ["convert_gptq_v1_to_v2_format_module"])
    for case, form, bits, ordered, size, rows, columns in (
            ("gptq", "gptq", 4, True, 32, 24, 96), ("gptq_order", "gptq", 4, False, 32, 24, 96),
            ("gptq_8_bits", "gptq", 8, True, 32, 12, 64), ("gptq_v2", "gptq_v2", 4, True, -1, 16, 64)):
        size_of = columns if size < 0 else size
        groups = columns // size_of
        codes, zeros = randint(0, 1 << bits, columns, rows), randint(0, 1 << bits, groups, rows)
        places = torch.arange(columns) if ordered else torch.randperm(columns, generator=DRAW)
        module = types.SimpleNamespace(
            bits=bits, planar=False, in_features=columns, maxq=(1 << bits) - 1, pack_factor=32 // bits, pack_dtype_bits=32,
            dequant_dtype=torch.int16 if bits == 8 else torch.int8, qweight=words_of(codes.T, bits).T,
            qzeros=words_of(zeros, bits), scales=uniform(0.01, 0.1, groups, rows, dtype=torch.float16),
            g_idx=(places // size_of).to(torch.int32))
        wf = torch.arange(0, 32, bits, dtype=torch.int32).unsqueeze(0)
        module.wf_unsqueeze_zero, module.wf_unsqueeze_neg_one = wf.unsqueeze(0), wf.unsqueeze(-1)
        module._init_wf_unsqueeze_buffers = lambda: None
        module._dequantize_from_codes = lambda weight, zeros, num_itr: from_codes(module, weight, zeros, num_itr)
        module.qzero_format = lambda format=None: 1
        stored = {name: getattr(module, name).clone() for name in ("qweight", "qzeros", "scales", "g_idx")}
        if form == "gptq":
            to_v2(module, bits, torch.int32)
        values = dequantize_weight(module)
        if case == "gptq_8_bits":
            del stored["g_idx"]  # the oldest files have none
        write(case, {"quant_method": "gptq", "bits": bits, "group_size": size, "desc_act": not ordered, "sym": False,
                     "checkpoint_format": form}, of_module(stored), {MODULE: values.T})


def mxfp4_case():
    experts = "model.layers.0.mlp.experts"
    tensors, expected = {}, {}
    for kind, rows, columns in (("gate_up_proj", 12, 64), ("down_proj", 10, 32)):
        blocks = randint(0, 256, 2, rows, columns // 32, 16, dtype=torch.uint8)
        scales = randint(100, 140, 2, rows, columns // 32, dtype=torch.uint8)
        tensors |= {f"{experts}.{kind}_blocks": blocks, f"{experts}.{kind}_scales": scales}
        values = convert_moe_packed_tensors(blocks, scales)  # [experts, columns, rows]
        for expert in range(2):
            rows_of = values[expert].T
            if kind == "down_proj":
                expected[f"{experts}.{expert}.down_proj"] = rows_of
            else:  # the rows of gate and up take turns
                expected[f"{experts}.{expert}.gate_proj"] = rows_of[0::2]
                expected[f"{experts}.{expert}.up_proj"] = rows_of[1::2]
    write("mxfp4", {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}, tensors, expected)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--autoawq", type=pathlib.Path, required=True)
    parser.add_argument("--gptqmodel", type=pathlib.Path, required=True)
    args = parser.parse_args()
    shutil.rmtree(OUT, ignore_errors=True)
    fp8_cases()
    compressed_tensors_cases()
    awq_case(args.autoawq)
    gptq_cases(args.gptqmodel)
    mxfp4_case()


if __name__ == "__main__":
    main()
