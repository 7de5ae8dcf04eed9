# SPDX-License-Identifier: Apache-2.0
"""Trains the byte-level BPE tokenizer and writes it with its chat template."""

import argparse
import json
import pathlib

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from corpus import training_documents

VOCABULARY = 2048
BEGIN, END = "<|begin|>", "<|end|>"
SPECIAL = (BEGIN, END, "<|system|>", "<|user|>", "<|assistant|>")

# A role that the model does not know is read as the user's. Of a tool the model sees its name and those of its
# parameters; tools.py writes the same texts.
CHAT_TEMPLATE = """\
{{- bos_token }}
{%- if tools %}
    {{- '<|system|>Tools: ' }}
    {%- for tool in tools %}
        {{- '' if loop.first else ', ' }}
        {{- tool['function']['name'] + '(' }}
        {%- for parameter in tool['function']['parameters']['properties'] or {} %}
            {{- '' if loop.first else ', ' }}
            {{- parameter }}
        {%- endfor %}
        {{- ')' }}
    {%- endfor %}
    {{- '<|end|>' }}
{%- endif %}
{%- for message in messages %}
    {%- if message['role'] in ['system', 'user', 'assistant'] %}
        {{- '<|' + message['role'] + '|>' }}
    {%- elif message['role'] == 'developer' %}
        {{- '<|system|>' }}
    {%- elif message['role'] == 'tool' %}
        {{- '<|user|>Result: ' }}
    {%- else %}
        {{- '<|user|>' }}
    {%- endif %}
    {{- (message['content'] or '') | trim }}
    {%- for call in message['tool_calls'] or [] %}
        {{- '\\n' if message['content'] or not loop.first else '' }}
        {{- '<tool_call>\\n{"name": ' }}
        {{- call['function']['name'] | tojson }}
        {{- ', "arguments": ' }}
        {{- call['function']['arguments'] | tojson }}
        {{- '}\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>' }}
{%- endif %}
"""


def train_tokenizer(seed: int, count: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()

    def texts():
        for document in training_documents(seed, count):
            if document.text:
                yield document.text
            for _, content in document.messages:
                yield content

    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[AddedToken(t, special=True, normalized=False) for t in SPECIAL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{BEGIN} $A", pair=f"{BEGIN} $A {BEGIN} $B:1",
                                      special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))]),
    ])
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--documents", type=int, default=30_000)
    parser.add_argument("--keep", action="store_true", help="only write the settings; tokenizer.json stays as it is")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    if not args.keep:
        tokenizer = train_tokenizer(args.seed, args.documents)
        assert tokenizer.get_vocab_size() == VOCABULARY, tokenizer.get_vocab_size()
        tokenizer.save(str(args.output / "tokenizer.json"))

    def write(name, value):
        (args.output / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    write("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BEGIN, "eos_token": END, "pad_token": END,
        "clean_up_tokenization_spaces": False, "model_max_length": 1024, "chat_template": CHAT_TEMPLATE})
    write("special_tokens_map.json", {"bos_token": BEGIN, "eos_token": END, "pad_token": END,
                                      "additional_special_tokens": list(SPECIAL[2:])})


if __name__ == "__main__":
    main()
