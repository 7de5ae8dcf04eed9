#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/conformance/model/scores/*.json: scores of tiny models in float64, of transformers' Qwen3 as a causal model,
whose two logits a softmax compares, and of decoders and encoders for sequence classification.

    PYTHON tests/conformance/model/make_score_goldens.py

PYTHON has torch, transformers 5.24 and sentence-transformers 6.2; no test needs them. Weights follow from their names
(make_goldens.py).
"""
import copy
import json
import pathlib

import numpy
import torch
import transformers
from make_embedding_goldens import BERT, MODERN, fill
from make_goldens import LENGTHS, base, distribution, weights

FOLDER = pathlib.Path(__file__).resolve().parent / "scores"
QWEN3 = base(head_dim=8, rope_theta=1000.0, attention_bias=False, model_type="qwen3")
YES, NO = 7, 11
ONE_LABEL = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
# Name -> class, config.json, tokens whose logits are compared, the relevant one first; none: a head of scores.
CASES = {
    "qwen3": ("Qwen3ForCausalLM", QWEN3, [YES, NO]),
    "qwen3_tied": ("Qwen3ForCausalLM", {**QWEN3, "tie_word_embeddings": True}, [YES, NO]),
    "qwen3_one": ("Qwen3ForCausalLM", QWEN3, [YES]),
    "qwen3_head": ("Qwen3ForSequenceClassification", {**QWEN3, **ONE_LABEL}, []),
    "bert": ("BertForSequenceClassification", {**BERT, **ONE_LABEL}, []),
    "xlm_roberta": ("XLMRobertaForSequenceClassification",
                    {**BERT, **ONE_LABEL, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1,
                     "bos_token_id": 0, "eos_token_id": 2, "model_type": "xlm-roberta"}, []),
    "modernbert": ("ModernBertForSequenceClassification",
                   {**MODERN, **ONE_LABEL, "classifier_pooling": "mean", "classifier_bias": False,
                    "classifier_activation": "gelu"}, []),
    "modernbert_cls": ("ModernBertForSequenceClassification",
                       {**MODERN, **ONE_LABEL, "norm_bias": True, "classifier_pooling": "cls", "classifier_bias": True,
                        "classifier_activation": "gelu_pytorch_tanh"}, []),
}


def make(name):
    class_name, config, tokens = CASES[name]
    config = {"architectures": [class_name], **config}
    model_class = getattr(transformers, class_name)
    settings = model_class.config_class.from_dict(
        {k: v for k, v in copy.deepcopy(config).items() if k != "architectures"})
    settings._attn_implementation = "eager"
    model = model_class(settings)
    if class_name.startswith("Qwen3"):
        tensors = {}
        for parameter_name, parameter in model.named_parameters():
            shape = list(parameter.shape)
            tensors[parameter_name] = [shape, *distribution(parameter_name, shape, False)]
            parameter.data = weights(parameter_name, *tensors[parameter_name]).reshape(shape)
    else:
        tensors = fill(model)
    if tokens and settings.tie_word_embeddings:
        model.tie_weights()
    model = model.double().eval()
    random = numpy.random.default_rng(6)
    is_bert = config["model_type"] == "bert"
    longest = config["max_position_embeddings"] - (2 if config["model_type"] == "xlm-roberta" else 0)
    sequences, types, scores = [], [], []
    for length in (*LENGTHS, 1, min(26, longest), 4):
        ids = [int(i) for i in random.integers(3, 20, length)]
        second = int(random.integers(0, length + 1)) if is_bert else length
        types.append([0] * second + [1] * (length - second))
        more = {"token_type_ids": torch.tensor([types[-1]])} if is_bert else {}
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids]), **more).logits
        if tokens:
            logits = logits[0, -1]
            score = (torch.softmax(logits[tokens], 0)[0] if len(tokens) == 2 else torch.sigmoid(logits[tokens[0]]))
        else:
            score = torch.sigmoid(logits[0, 0])
        assert score.dtype == torch.float64
        sequences.append(ids)
        scores.append(float(f"{score.item():.12g}"))
    golden = {"config": config, "tensors": tensors, "tokens": tokens, "sequences": sequences, "scores": scores}
    return {**golden, "types": types} if is_bert else golden


def main():
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for name in CASES:
        path = FOLDER / f"{name}.json"
        path.write_text(json.dumps(make(name), indent=1) + "\n")
        print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
