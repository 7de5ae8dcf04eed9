#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/conformance/model/embeddings/*.json: vectors of tiny embedding models in float64, of transformers' models
and the modules of sentence-transformers.

    PYTHON tests/conformance/model/make_embedding_goldens.py

PYTHON has torch, transformers 5.24 and sentence-transformers 6.2; no test needs them. Weights follow from their names
(make_goldens.py). Tensors are named as Qwen3-Embedding's are, those of a bare decoder without a head.
"""
import copy
import json
import os
import pathlib

import numpy
import torch
import transformers
from make_goldens import LENGTHS, base, distribution, weights
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import Pooling

FOLDER = pathlib.Path(__file__).resolve().parent / "embeddings"
ACTIVATIONS = {"torch.nn.modules.linear.Identity": torch.nn.Identity, "torch.nn.modules.activation.Tanh": torch.nn.Tanh}
BERT = {"vocab_size": 32, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 36,
        "hidden_act": "gelu", "max_position_embeddings": 24, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
        "pad_token_id": 0, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
        "position_embedding_type": "absolute", "model_type": "bert"}
MODERN = {"vocab_size": 32, "hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 4,
          "intermediate_size": 20, "hidden_activation": "gelu", "max_position_embeddings": 64, "norm_eps": 1e-5,
          "norm_bias": False, "attention_bias": False, "mlp_bias": False, "local_attention": 6,
          "global_attn_every_n_layers": 3, "global_rope_theta": 500.0, "local_rope_theta": 50.0, "pad_token_id": 0,
          "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2, "classifier_pooling": "mean",
          "deterministic_flash_attn": False, "embedding_dropout": 0.0, "model_type": "modernbert"}
# Name -> model class, architecture of config.json, config.json, dense modules, whether vectors are scaled, the pooling.
CASES = {
    "bert_cls": ("BertModel", "BertModel", BERT, [], True, "cls"),
    "bert_mean": ("BertModel", "BertForMaskedLM", {**BERT, "hidden_act": "gelu_new"}, [], False, "mean"),
    "xlm_roberta": ("XLMRobertaModel", "XLMRobertaModel",
                    {**BERT, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1, "bos_token_id": 0,
                     "eos_token_id": 2, "model_type": "xlm-roberta"}, [], True, "mean"),
    "modernbert": ("ModernBertModel", "ModernBertModel", MODERN, [], True, "cls"),
    "modernbert_biased": ("ModernBertModel", "ModernBertModel", {**MODERN, "norm_bias": True}, [], False, "mean"),
    "embedding_gemma": ("Gemma3TextModel", "Gemma3TextModel",
                        base("tie_word_embeddings", head_dim=8, query_pre_attn_scalar=16, sliding_window=8,
                             sliding_window_pattern=2, rope_theta=500.0, rope_local_base_freq=50.0,
                             hidden_activation="gelu_pytorch_tanh", attention_bias=False,
                             use_bidirectional_attention=True, model_type="gemma3_text"),
                        [(24, 40, False, "torch.nn.modules.linear.Identity"),
                         (40, 24, False, "torch.nn.modules.linear.Identity")], True, "mean"),
    "qwen3": ("Qwen3Model", "Qwen3ForCausalLM",
              base(head_dim=8, rope_theta=1000.0, attention_bias=False, model_type="qwen3"), [], True, "lasttoken"),
    "qwen3_dense": ("Qwen3Model", "Qwen3Model",
                    base(head_dim=8, rope_theta=1000.0, attention_bias=False, model_type="qwen3"),
                    [(24, 40, False, "torch.nn.modules.linear.Identity"),
                     (40, 11, True, "torch.nn.modules.activation.Tanh")], True, "lasttoken"),
    "llama": ("LlamaModel", "LlamaModel", base(rope_theta=500.0, head_dim=6, model_type="llama"),
              [(24, 9, True, "torch.nn.modules.linear.Identity")], False, "lasttoken"),
}


def distribution_of(name, shape, gains_less_one):
    """Gains of norms are near 1, as those of decoders are, which have other names."""
    if name.endswith(("LayerNorm.weight", "_norm.weight", "embeddings.norm.weight")) and not gains_less_one:
        return 1, 0.25
    return distribution(name, shape, gains_less_one)


def fill(module, prefix="", gains_less_one=False):
    """Gives parameters the weights of their names; returns [shape, offset, amplitude] by name."""
    tensors = {}
    for name, parameter in module.named_parameters():
        shape = list(parameter.shape)
        tensors[prefix + name] = [shape, *distribution_of(prefix + name, shape, gains_less_one)]
        parameter.data = weights(prefix + name, *tensors[prefix + name]).reshape(shape)
    return tensors


def make(name):
    model_name, architecture, config, dense, normalises, pooling = CASES[name]
    config = {"architectures": [architecture], **config}
    model_class = getattr(transformers, model_name)
    settings = model_class.config_class.from_dict(
        {k: v for k, v in copy.deepcopy(config).items() if k != "architectures"})
    settings._attn_implementation = "eager"
    model = model_class(settings)
    tensors = fill(model, gains_less_one=config["model_type"].startswith("gemma"))
    model = model.double().eval()
    modules, folders = [Pooling(config["hidden_size"], pooling)], {}
    listed = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
              {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    files = {"1_Pooling/config.json": modules[0].get_config_dict()}
    for i, (size_in, size_out, has_bias, activation) in enumerate(dense):
        folder = f"{i + 2}_Dense"
        module = Dense(size_in, size_out, bias=has_bias, activation_function=ACTIVATIONS[activation]())
        # Of distinct names, so that two layers differ; a file's own names have no folder.
        folders[folder] = {key.removeprefix(folder + "."): value for key, value in fill(module, folder + ".").items()}
        files[f"{folder}/config.json"] = module.get_config_dict()
        listed.append({"idx": i + 2, "name": str(i + 2), "path": folder,
                       "type": "sentence_transformers.models.Dense"})
        modules.append(module.double())
    if normalises:
        modules.append(Normalize())
        listed.append({"idx": len(listed), "name": str(len(listed)), "path": f"{len(listed)}_Normalize",
                       "type": "sentence_transformers.models.Normalize"})
    files["modules.json"] = listed
    random = numpy.random.default_rng(5)
    sequences, vectors = [], []
    for length in (*LENGTHS, 1):
        ids = [int(i) for i in random.integers(3, 20, length)]
        with torch.no_grad():
            state = model(input_ids=torch.tensor([ids])).last_hidden_state.double()
            features = {"token_embeddings": state, "attention_mask": torch.ones(1, length, dtype=torch.int64)}
            for module in modules:
                features = module(features)
        sequences.append(ids)
        vectors.append([float(f"{x:.9g}") for x in features["sentence_embedding"][0].tolist()])
    return {"config": config, "tensors": tensors, "dense": folders, "files": files, "sequences": sequences,
            "vectors": vectors}


def main():
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for name in CASES:
        path = FOLDER / f"{name}.json"
        path.write_text(json.dumps(make(name), indent=1) + "\n")
        print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
