#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tiny tokenizers of this folder. Needs nothing but Python.

byte_level   GPT-2's kind: bytes as printable characters, a few merges, a chat template
byte_fallback  Llama's kind: "▁" for a space, <0xXX> for what has no piece, BOS in front
"""
import json
import pathlib

HERE = pathlib.Path(__file__).parent


def added(token_id, content, special=True):
    return {"id": token_id, "content": content, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": special}


def with_merges(vocab, merges):
    for left, right in merges:
        assert left in vocab and right in vocab, (left, right)
        vocab.setdefault(left + right, len(vocab))
    return [f"{left} {right}" for left, right in merges]


def byte_chars():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    chars = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [chars[b] for b in range(256)]


def byte_level():
    chars = byte_chars()
    vocab = {c: i for i, c in enumerate(chars)}
    smile = [chars[b] for b in "😀".encode()]
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("o", "r"),
              ("Ġw", "or"), ("l", "d"), ("Ġwor", "ld"), ("Ã", "©"), (smile[0], smile[1]),
              (smile[2], smile[3])]
    merges = with_merges(vocab, merges)
    end = len(vocab)
    tokens = [added(end, "<|end|>"), added(end + 1, "<|user|>"), added(end + 2, "<|assistant|>"),
              added(end + 3, "<think>", special=False)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
        "normalizer": None, "pre_tokenizer": level, "post_processor": level, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": merges}}
    template = (
        "{%- for message in messages %}\n"
        "    {%- if message.role not in ['system', 'user', 'assistant', 'tool'] %}\n"
        "        {{- raise_exception('no role ' + message.role) }}\n"
        "    {%- endif %}\n"
        "    {{- '<|' + message.role + '|>' }}\n"
        "    {%- if message.reasoning_content %}{{ '<think>' + message.reasoning_content }}{% endif %}\n"
        "    {%- if message.name is defined %}{{ '(' + message.name + ')' }}{% endif %}\n"
        "    {%- if message.tool_call_id is defined %}{{ '#' + message.tool_call_id }}{% endif %}\n"
        "    {{- message.content + eos_token }}\n"
        "{%- endfor %}\n"
        "{%- if date is defined %}{{ strftime_now(date) }}{% endif %}\n"
        "{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}\n")
    config = {"eos_token": {"content": "<|end|>", "special": True}, "bos_token": None,
              "tokenizer_class": "PreTrainedTokenizerFast",
              "chat_template": [{"name": "tool_use", "template": "other"},
                                {"name": "default", "template": template}]}
    return tokenizer, config


def byte_fallback():
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    for char in "▁abcdefghijklmnopqrstuvwxyz.é":
        vocab[char] = len(vocab)
    merges = with_merges(vocab, [("▁", "t"), ("h", "e"), ("▁t", "he"), ("▁", "c"), ("a", "t"),
                                 ("▁c", "at")])
    bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>",
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": True, "byte_fallback": True, "vocab": vocab, "merges": merges}}
    return tokenizer, {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True,
                       "tokenizer_class": "LlamaTokenizer"}


for name, make in [("byte_level", byte_level), ("byte_fallback", byte_fallback)]:
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    for file, content in zip(["tokenizer.json", "tokenizer_config.json"], make()):
        text = json.dumps(content, ensure_ascii=False, indent=1)
        (folder / file).write_text(text + "\n", encoding="utf-8")
