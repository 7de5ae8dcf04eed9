# SPDX-License-Identifier: Apache-2.0
"""Writes testdata/parse_response.json: what transformers' parse_response (5.17 or newer) reads in answers, whole and
cut off, by response templates of its own form and by those of response_formats.cc.

    python3 tests/worker/text/response/make_goldens.py

Where parse_response raises, which it does for most answers that are cut in a call, the golden has the text and thoughts
of the longest shorter cut that it reads, and no calls. Of the built-in formats it cannot read lfm2 and pythonic, which
are Python, llama3 and mistral_args, whose calls nothing ends, and harmony, whose text has a header.
"""
import json
import pathlib
import re

from transformers.utils.chat_parsing import parse_response

OUT = pathlib.Path(__file__).parent / "testdata" / "parse_response.json"
ROOT = pathlib.Path(__file__).resolve().parents[4]
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


# Answers in the built-in formats, with the markers of the thoughts. Each pays and rests.
PAY = '{"amount": 1.5, "to": "Zoë \\"Z\\""}'
BUILT_IN = {
    "hermes": ("<think>", "<think>\nSo é\n</think>\n\nI pay.\n<tool_call>\n{\"name\": \"pay\", \"arguments\": " + PAY +
               "}\n</tool_call>\n<tool_call>\n{\"name\": \"rest\", \"arguments\": {}}\n</tool_call>"),
    "qwen_xml": ("<think>", "<think>\nSo\n</think>\n\nI pay.\n\n<tool_call>\n<function=pay>\n<parameter=amount>\n1.5\n"
                 "</parameter>\n<parameter=to>\nZoë \"Z\"\n<b>\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n"
                 "<function=rest>\n</function>\n</tool_call>"),
    "glm": ("<think>", "<think>So</think>\nI pay.\n<tool_call>pay\n<arg_key>amount</arg_key>\n<arg_value>1.5</arg_value>\n"
            "<arg_key>to</arg_key>\n<arg_value>Zoë \"Z\"</arg_value>\n</tool_call>\n<tool_call>rest\n</tool_call>"),
    "functionary": ("", "I pay.\n<function=pay>" + PAY + "</function>\n<function=rest>{}</function>"),
    "gemma": ("<|channel>thought\n", "<|channel>thought\nSo\n<channel|>I pay.<|tool_call>call:pay{amount:1.5,to:<|\"|>Zoë "
              "\"Z\"<|\"|>,tags:[<|\"|>x<|\"|>,{deep:true}]}<tool_call|><|tool_call>call:rest{}<tool_call|>Done."),
    "deepseek": ("<think>", "<think>So</think>I pay.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>pay\n```json\n" +
                 PAY + "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>rest\n```json\n{}\n```"
                 "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
    "deepseek_dsml": ("<think>", "<think>So</think>I pay.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"pay\">\n"
                      "<｜DSML｜parameter name=\"amount\" string=\"false\">1.5</｜DSML｜parameter>\n<｜DSML｜parameter name=\"to\" "
                      "string=\"true\">Zoë \"Z\"</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"),
    "minimax": ("<think>", "<think>So</think>I pay.\n<minimax:tool_call>\n<invoke name=\"pay\">\n<parameter name=\"amount\">1.5"
                "</parameter>\n<parameter name=\"to\">Zoë \"Z\"</parameter>\n</invoke>\n<invoke name=\"rest\">\n</invoke>\n"
                "</minimax:tool_call>"),
    "minicpm": ("", "I pay.\n<function name=\"pay\"><param name=\"amount\">1.5</param><param name=\"to\">Zoë</param></function>"),
    "kimi": ("<think>", "<think>So</think>I pay.<|tool_calls_section_begin|><|tool_call_begin|>functions.pay:0"
             "<|tool_call_argument_begin|>" + PAY + "<|tool_call_end|><|tool_call_begin|>functions.rest:1"
             "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"),
    "mistral": ("[THINK]", "[THINK]So[/THINK]I pay.[TOOL_CALLS][{\"name\": \"pay\", \"arguments\": " + PAY + "}, "
                "{\"name\": \"rest\", \"arguments\": {}}]"),
    "cohere": ("<|START_THINKING|>", "<|START_THINKING|>So.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
               "\"tool_name\": \"pay\", \"parameters\": " + PAY + "},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"rest\", "
               "\"parameters\": {}}\n]<|END_ACTION|>"),
    "granite": ("<think>", "<think>So</think><response>I pay.</response><|tool_call|>[{\"name\": \"pay\", \"arguments\": " + PAY +
                "}, {\"name\": \"rest\", \"arguments\": {}}]"),
    "gigachat": ("", "I pay.<|function_call|>{\"name\": \"pay\", \"arguments\": " + PAY + "}"),
    "toolcall_list": ("<think>", "<think>So</think>I pay.\n<TOOLCALL>[{\"name\": \"pay\", \"arguments\": " + PAY +
                      "}, {\"name\": \"rest\", \"arguments\": {}}]</TOOLCALL>"),
}


def built_in_fields():
    """By format, its field of calls and the patterns of what else is no text."""
    source = (ROOT / "services/worker/text/response/response_formats.cc").read_text()
    found = re.findall(r'\{"(\w+)", "(?:[^"\\]|\\.)*", R"json\((.*?)\)json"(?:,\s*R"json\((.*?)\)json")?', source, re.S)
    return {name: (json.loads(calls), json.loads(ignored or "[]")) for name, calls, ignored in found}


def built_in(name, markers):
    """The format as a template for transformers, and what is taken out of the text that it reads."""
    calls, ignored = built_in_fields()[name]
    thoughts = {"open": markers, "close": {"<|channel>thought\n": "<channel|>", "<|START_THINKING|>": "<|END_THINKING|>"}.get(
        markers, markers[0] + "/" + markers[1:]), **TEXT} if markers else None
    fields = {"tool_calls": {**calls, "repeats": True, "transform": {"type": "function", **calls["transform"]}},
              "content": TEXT, **({"thinking": thoughts} if thoughts else {})}
    return {"start_anchor": "<A>", "fields": fields}, ignored


def flat(calls):
    """Calls of which one field has several."""
    for call in calls:
        if isinstance(call, list):
            yield from flat(call)
        elif isinstance(call["function"], list):
            yield from call["function"]
        else:
            yield call["function"]


def golden(spec, prompt, answer, ignored=()):
    """None where parse_response raises."""
    try:
        message = parse_response(answer, spec, prefix=prompt, tools=TOOLS)
    except (ValueError, KeyError, TypeError):
        return None
    text = message.get("content", "")
    for pattern in ignored:
        text = re.sub(r"\s*" + pattern + r"\s*", "", text)
    return {"thoughts": message.get("thinking", ""), "text": text.strip(),
            "calls": [{"name": call["name"], "arguments": call["arguments"]}
                      for call in flat(message.get("tool_calls", []))]}


def goldens(spec, prompt, answer, lengths, ignored=()):
    """[bytes, golden] for each cut."""
    whole, cuts, read = golden(spec, prompt, answer, ignored), [], None
    assert whole is not None, answer
    for length in range(1, len(answer) + 1):
        one = golden(spec, prompt, answer[:length], ignored)
        if one is None:
            one = read
        elif all(whole[kind].startswith(one[kind]) for kind in ("thoughts", "text")):
            # Without half a marker.
            read = {"thoughts": one["thoughts"], "text": one["text"]}
        if one is not None and lengths(length):
            cuts.append([len(answer[:length].encode()), one])
    return cuts


def main():
    result = {"tools": {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}, "formats": []}
    for name, (spec, answers) in FORMATS.items():
        # Without a field for the rest transformers loses half a marker, which is text here.
        has_rest = any("open" not in field and "open_pattern" not in field for field in spec["fields"].values())
        cases = [{"prompt": prompt, "answer": answer, "cuts": goldens(
            spec, prompt, answer, lambda n, end=len(answer): (has_rest and n % 3 == 0) or n == end)}
            for prompt, answer in answers]
        result["formats"].append({"name": name, "template": json.dumps(spec), "cases": cases})
    for name, (markers, answer) in BUILT_IN.items():
        spec, ignored = built_in(name, markers)
        cuts = goldens(spec, "<A>", answer, lambda n, end=len(answer): n % 3 == 0 or n == end, ignored)
        result["formats"].append({"name": name, "markers": markers, "cases": [
            {"prompt": "", "answer": answer, "cuts": cuts}]})
    OUT.write_text(json.dumps(result, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
