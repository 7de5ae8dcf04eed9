# SPDX-License-Identifier: Apache-2.0
"""Writes testdata/parse_response.json: what transformers' parse_response (5.17 or newer) reads in answers, whole and
cut off, by response templates of its own form.

    python3 tests/worker/text/response/make_goldens.py

Where parse_response raises, which it does for most answers that are cut in a call, there is no golden.
"""
import json
import pathlib

from transformers.utils.chat_parsing import parse_response

OUT = pathlib.Path(__file__).parent / "testdata" / "parse_response.json"
NAME_AND_CONTENT = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
CONTENT = {"type": "function", "function": "{content}"}
TEXT = {"repeats": True, "join": ""}
THINK = {"open": "<think>", "close": "</think>", **TEXT}
TOOLS = [{"type": "function", "function": {"name": "pay", "parameters": {"type": "object", "properties": {
    "amount": {"type": "number"}, "to": {"type": "string"}, "now": {"type": "boolean"},
    "note": {"type": ["string", "null"]}, "tags": {"type": "array"}}}}}]


def template(anchor, calls, thinking=None, content=None):
    return {"start_anchor": anchor, "fields": {"thinking": thinking or THINK, "tool_calls": {"repeats": True, **calls},
                                               "content": content or {**TEXT, "close": ["<|im_end|>", "</s>"]}}}


FORMATS = {
    "json": (
        template("<|im_start|>assistant\n",
                 {"open": "<tool_call>", "close": "</tool_call>", "content": "json", "transform": CONTENT}),
        [("<|im_start|>assistant\n",
          "<think>\nWhat a day: é\n</think>\n\nI pay.\n<tool_call>\n{\"name\": \"pay\", \"arguments\": {\"amount\": 1.5, "
          "\"to\": \"Zoë \\\"Z\\\"\"}}\n</tool_call>\n<tool_call>{\"name\": \"rest\", \"arguments\": {}}</tool_call>"
          "<|im_end|>"),
         ("<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n<think>\n", "So\n\nit is.</think>\nYes, < no.\n\n<b>"),
         ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "Plain\n\ttext  <tool_ and more ")]),
    "tags": (
        template("<|im_start|>assistant\n",
                 {"open_pattern": r"<tool_call>\s*<function=(?P<name>\w+)>",
                  "close_pattern": r"\s*</function>\s*</tool_call>", "content": "xml-inline",
                  "content_args": {"tag_pattern": r"<parameter=(?P<key>\w+)>\n?(?P<value>.*?)\n?</parameter>"},
                  "transform": NAME_AND_CONTENT}),
        [("<|im_start|>assistant\n<think>\n",
          "Pay.\n</think>\n\nOk.\n\n<tool_call>\n<function=pay>\n<parameter=amount>\n12\n</parameter>\n<parameter=to>\n"
          "  7 \"x\"\n\ny\n</parameter>\n<parameter=now>\ntrue\n</parameter>\n<parameter=note>null</parameter>\n"
          "<parameter=tags>\n[\"a\", 2]\n</parameter>\n</function>\n</tool_call>\n<tool_call><function=rest>\n</function>"
          "</tool_call>\n")]),
    "lax": (
        template(["<|turn>model\n", "<tool_response|>"],
                 {"open_pattern": r"<\|tool_call>call:(?P<name>\w+)", "close": "<tool_call|>", "content": "json",
                  "content_args": {"unquoted_keys": True, "string_delims": [["<|\"|>", "<|\"|>"]]},
                  "transform": NAME_AND_CONTENT},
                 thinking={"open": "<|channel>thought\n", "close": "<channel|>", **TEXT},
                 content={**TEXT, "close": ["<turn|>", "<eos>"]}),
        [("<|turn>model\n",
          "<|channel>thought\nI pay <|channel>.\n<channel|><|tool_call>call:pay{amount:3,to:<|\"|>a {b:1, \"c\"}\n<|\"|>,"
          "tags:[<|\"|>x<|\"|>,{deep:{er:false}}]}<tool_call|><|tool_call>call:rest{}<tool_call|>Done.<turn|>")]),
    "list": (
        template("<|CHATBOT_TOKEN|>",
                 {"open": "<|START_ACTION|>", "close": "<|END_ACTION|>", "content": "json", "transform_each": True,
                  "transform": {"type": "function", "function": {"name": "{tool_name}", "arguments": "{parameters}"}},
                  "repeats": False},
                 thinking={"open": "<|START_THINKING|>", "close": "<|END_THINKING|>"},
                 content={"open": "<|START_RESPONSE|>", "close": "<|END_RESPONSE|>"}),
        [("<|CHATBOT_TOKEN|>",
          "<|START_THINKING|>I act.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"pay\", "
          "\"parameters\": {\"amount\": 1}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"rest\", \"parameters\": {}}\n]"
          "<|END_ACTION|>"),
         ("<|CHATBOT_TOKEN|><|START_THINKING|>", "Hm <|END_THINKING|><|START_RESPONSE|> It is. <|END_RESPONSE|>")]),
    "channels": (
        template("<|start|>assistant",
                 {"open_pattern": r"(?:<\|start\|>assistant)?<\|channel\|>commentary to=functions\.(?P<name>\w+).*?"
                                  r"<\|message\|>", "close": "<|call|>", "content": "json",
                  "transform": NAME_AND_CONTENT},
                 thinking={"open_pattern": r"(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>",
                           "close": "<|end|>", **TEXT},
                 content={"open_pattern": r"(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>",
                          "close_pattern": r"<\|(?:end|return)\|>"}),
        [("<|start|>assistant",
          "<|channel|>analysis<|message|>I pay: a < b.<|end|><|start|>assistant<|channel|>commentary to=functions.pay "
          "<|constrain|>json<|message|>{\"amount\": 1, \"to\": \"x\\u00e9\"}<|call|>"),
         ("<|start|>assistant", "<|channel|>final<|message|>It is  <| paid.\n<|return|>")]),
}


def golden(spec, prompt, answer):
    """None where parse_response raises."""
    try:
        message = parse_response(answer, spec, prefix=prompt, tools=TOOLS)
    except (ValueError, KeyError, TypeError):
        return None
    calls = [call["function"] for call in message.get("tool_calls", [])]
    return {"thoughts": message.get("thinking", ""), "text": message.get("content", ""),
            "calls": [{"name": call["name"], "arguments": call["arguments"]} for call in calls]}


def main():
    result = {"tools": {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}, "formats": []}
    for name, (spec, answers) in FORMATS.items():
        # Without a field for the rest transformers loses half a marker, which is text here.
        has_rest = any("open" not in field and "open_pattern" not in field for field in spec["fields"].values())
        cases = []
        for prompt, answer in answers:
            cuts = {}
            for length in range(1, len(answer) + 1):
                if (has_rest and length % 3 == 0) or length == len(answer):
                    if (one := golden(spec, prompt, answer[:length])) is not None:
                        cuts[length] = one
            cases.append({"prompt": prompt, "answer": answer, "cuts": [
                [len(answer[:length].encode()), one] for length, one in cuts.items()]})
            assert len(answer) in cuts, (name, answer)
        result["formats"].append({"name": name, "template": json.dumps(spec), "cases": cases})
    OUT.write_text(json.dumps(result, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
