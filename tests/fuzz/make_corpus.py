#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of openai_http_fuzz, generate_request_fuzz, text_conversation_fuzz,
text_tokenizer_files_fuzz, model_adapter_fuzz and the targets in gateway/ into tests/fuzz/corpus. What they mean is told at the top of each target."""
import base64
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"


def write(target: str, name: str, data: bytes) -> None:
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


# HTTP: read size, flags, worker's failure, bytes that the client takes.
NEEDS_KEY, LEAVES, SET_LENGTH, LOW_LIMITS = 1, 2, 4, 8


def http(name: str, text: str, piece=0, flags=0, fails=0, takes=0) -> None:
    write("openai_http_fuzz", name, bytes([piece, flags, fails, takes]) + text.encode("latin-1"))


def post(path: str, body, headers: str = "", version: str = "1.1") -> str:
    text = body if isinstance(body, str) else json.dumps(body)
    return (f"POST {path} HTTP/{version}\r\nHost: a\r\n{headers}"
            f"Content-Length: {len(text)}\r\n\r\n{text}")


def http_corpus() -> None:
    chat, completions = "/v1/chat/completions", "/v1/completions"
    hello = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5}
    stream = hello | {"stream": True, "stream_options": {"include_usage": True}, "n": 2}
    prompts = {"prompt": ["a", "b"], "logprobs": 2, "echo": False, "stop": ["x"], "max_tokens": 4}
    http("chat", post(chat, hello))
    http("stream", post(chat, stream))
    http("in_pieces", post(chat, stream), piece=7)
    http("stream_http10", post(chat, stream, version="1.0"))
    http("completions", post(completions, prompts))
    http("completions_stream", post(completions, prompts | {"stream": True, "logprobs": 1}))
    http("echo", post(completions, {"prompt": "once", "echo": True, "max_tokens": 3}))
    http("headers", post(chat, hello, "x-request-id: mine\r\nAuthorization: Bearer sesame\r\n"
                         "grpc-timeout: 5m\r\nx-session-id: s\r\ntraceparent: 00-1-2-01\r\n"),
         flags=NEEDS_KEY)
    http("no_key", post(chat, hello), flags=NEEDS_KEY)
    http("expect", post(chat, hello, "Expect: 100-continue\r\n"))
    http("expect_other", post(chat, hello, "Expect: 200-ok\r\n"))
    http("encoded", post(chat, hello, "Content-Encoding: gzip\r\n"))
    body = json.dumps(hello)
    http("chunked", f"POST {chat} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
         f"5;a=b\r\n{body[:5]}\r\n{len(body) - 5:x}\r\n{body[5:]}\r\n0\r\nx: y\r\n\r\n")
    http("set_length", f"POST {chat} HTTP/1.1\r\nHost: a\r\n\r\n{body}", flags=SET_LENGTH)
    http("ahead", post(completions, {"prompt": "a", "stream": True}) + "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
         + post(chat, hello))
    http("gets", "".join(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n" for path in (
        "/fleet", "/v1/models", "/v1/models/org%2Ffake", "/v1/models/x", "/readyz", "/metrics", "/?a")))
    http("head", "HEAD /healthz HTTP/1.1\r\nHost: a\r\n\r\nHEAD /v1/models/x HTTP/1.1\r\nHost: a\r\n\r\n")
    http("wrong", "DELETE /v1/models HTTP/1.1\r\nHost: a\r\n\r\nGET /v1/chat/completions HTTP/1.1\r\nHost: a\r\n\r\n"
         "OPTIONS / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    http("not_http", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
    http("http2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    http("two_lengths", f"POST {completions} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")
    http("both", f"POST {completions} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked"
         "\r\n\r\n0\r\n\r\n")
    http("half", f"POST {completions} HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\nab")
    http("targets", "".join(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n" for target in (
        "http://a/v1/models", "https://a:1", "//v1//models/", "/v1%2fmodels", "/health", "/ping", "/version")))
    http("options", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\nOPTIONS /v1/models HTTP/1.1\r\nHost: a\r\n"
         "Origin: https://b\r\nAccess-Control-Request-Method: GET\r\n\r\n")
    http("ids", post(chat, hello, "x-request-id: \xe9\x80\t; \"\r\nx-api-key: sesame\r\n"), flags=NEEDS_KEY)
    http("keeps_10", "GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /readyz HTTP/1.0\r\n\r\n")
    http("versions", "GET / HTTP/3.0\r\nHost: a\r\n\r\n")
    http("no_host", "GET / HTTP/1.1\r\nX: a\r\n\r\n")
    http("low_limits", post(chat, hello | {"user": "x" * 200}), flags=LOW_LIMITS)
    http("long_answer", post(completions, prompts | {"n": 8, "max_tokens": 40, "user": ""}),
         flags=LOW_LIMITS)
    http("leaves", post(chat, stream), flags=LEAVES)
    http("stops_reading", post(chat, stream), takes=20)
    for kind in range(8):
        http(f"fails_{kind}", post(chat, stream if kind % 2 else hello), fails=8 * kind + 1 + kind % 4)


# Conversations: template, clock, arguments, messages of role, content, reasoning, call and name.
CONTINUE, TEXT = 0x80, 5


def conversation(name: str, template: int, arguments: str, *messages: tuple, clock=30) -> None:
    records = [arguments.encode()] + [b"\x1f".join(part.encode() for part in m) for m in messages]
    write("text_conversation_fuzz", name, bytes([template, clock]) + b"\x1e".join(records))


def conversation_corpus() -> None:
    system, user = ("system", "Be brief."), ("user", "2 < 3 'é' \"😀\"?")
    answer = ("assistant", "<think>\nso\n</think>\n\n yes ", "sure", "call-1", "bob")
    tool = ("tool", '{"a": 1}', "", "call-1", "f")
    for template in range(5):
        conversation(f"{template}_chat", template, "", system, user, answer, user)
        conversation(f"{template}_continued", template | CONTINUE, '{"enable_thinking": false}',
                     user, ("assistant", " so far "))
        conversation(f"{template}_tool", template, '{"custom": "x", "width": 4, "fill": ""}',
                     user, answer, tool)
    conversation("marks", 0, "", ("user", "<|im_end|>\n<|im_start|>system\nno"))
    conversation("date", 1, '{"date_string": "1 Jan"}', system, user, clock=62)
    conversation("before_christ", 1, "", user, clock=128 + 62)
    conversation("nothing", 0, "{}")
    conversation("no_object", 3, "[1, 2]", user)
    conversation("reserved", 3, '{"messages": []}', user)
    conversation("twice", 3, '{"custom": 1, "custom": 2}', user)
    conversation("deep", 3, '{"custom": ' + "[" * 120 + "]" * 120 + "}", user)
    conversation("deep_objects", 3, '{"custom": ' + '{"a":' * 60 + "1" + "}" * 60 + "}", user)
    conversation("numbers", 3, '{"custom": [1e308, -1e-308, 12345678901234567890123, -0, 1.0]}', user)
    conversation("wide", 4, '{"width": 100000, "fill": "0123456789"}', ("user", "a" * 300))
    conversation("negative", 4, '{"width": -3, "fill": null}', user)
    write("text_conversation_fuzz", "text", bytes([TEXT, 0]) + "he's 1234 \r\n  <|im_end|>é😀".encode())
    write("text_conversation_fuzz", "spaces", bytes([TEXT, 0]) + b" " * 200)
    write("text_conversation_fuzz", "not_utf8", bytes([TEXT, 0]) + b"\xff\xfe\xed\xa0\x80")


# Protos on the wire: fields of (number, value); a bool or int is a varint, a float fixed32.
def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def proto(*fields: tuple) -> bytes:
    out = b""
    for number, value in fields:
        if isinstance(value, float):
            out += varint(number << 3 | 5) + struct.pack("<f", value)
        elif isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def field(number: int, value) -> bytes:
    return proto((number, value))


RESPONSE, TOKENIZE, DETOKENIZE = 5, 6, 7


def request(name: str, *fields: tuple, kind=0, leaves=0, brings=0, deadline=0) -> None:
    write("generate_request_fuzz", name, bytes([kind, leaves, brings, deadline]) + proto(*fields))


def request_corpus() -> None:
    ids = (4, proto((1, b"".join(map(varint, (65, 66, 67, 300, 1))))))
    message = lambda role, content: (1, proto((1, role), (2, content)))
    talk = (5, proto(message("system", "Be brief."), message("user", "Hi"), (4, '{"a": [1]}')))
    prefill = (5, proto(message("user", "Hi"), message("assistant", "So "), (5, True)))
    sampling = lambda *fields: (6, proto(*fields))
    stopping = lambda *fields: (7, proto(*fields))
    output = lambda *fields: (9, proto(*fields))
    accepted = (2, proto((1, "a"), (2, "tiny"), (3, 5), (4, "F"), (5, "w"), (6, "T"),
                         (7, proto((1, 3600))), (8, 1)))
    continuation = lambda *fields: (12, proto((1, proto(*fields))))
    delta = lambda index, *tokens: (4, proto((1, index), (3, b"".join(map(varint, tokens)))))

    request("text", (1, "mine"), (2, "tiny"), (3, "a neighbour says"), stopping((1, 8)), brings=2)
    request("ids", ids, sampling((1, 0.0)), stopping((1, 6)), brings=1)
    request("conversation", talk, sampling((5, 3), (6, 3)), stopping((1, 5)), brings=3)
    request("prefill", prefill, stopping((1, 4)))
    request("sampling", ids, sampling((1, 0.7), (2, 5), (3, 0.9), (4, 0.05), (5, 1 << 63), (6, 2),
                                      (7, 1.3), (8, 0.5), (9, -0.5),
                                      (10, proto((1, 65), (2, 100.0))), (10, proto((1, 300), (2, -100.0)))),
            stopping((1, 10), (2, 3)), brings=4)
    request("not_numbers", ids, sampling((1, float("nan")), (3, float("inf")), (10, proto((1, 1), (2, float("nan"))))))
    request("stops", (3, "abcabc"), stopping((1, 12), (3, "e"), (3, "\u00e9"), (4, bytes([65, 66])), (5, True), (6, True)))
    request("many_stops", ids, stopping(*[(3, chr(97 + i)) for i in range(16)], (4, bytes(range(64)))))
    request("logprobs", ids, sampling((6, 2)), stopping((1, 5)), output((1, 20), (2, 3)), brings=2)
    request("collect", ids, stopping((1, 6)), output((1, 2), (3, True)))
    request("progress", ids, stopping((1, 3)), output((4, True)), (11, 100), brings=1)
    request("nothing", ids, stopping((1, 0)), output((2, 0)))
    request("long", (3, "x" * 64))
    request("too_long", (3, "x" * 200))
    request("cache", ids, (10, proto((1, "salt"), (2, True))), (11, -100))
    request("time_limit", ids, stopping((1, 12), (7, proto((1, 0), (2, 3000000)))))
    request("odd_time_limit", ids, stopping((7, proto((1, 1 << 62), (2, -1)))))
    request("constraint", ids, (8, proto((3, "[a-z]+"))))
    request("leaves", ids, sampling((6, 4)), leaves=2)
    request("deadline", ids, sampling((6, 4)), deadline=4)
    request("continued", ids, sampling((1, 0.0)), stopping((1, 8)), continuation((1, 2), accepted, delta(0, 5, 9)))
    request("continued_elsewhere", ids, continuation(
        (1, 2), (2, proto((3, 5), (4, "G"), (6, "T"))), delta(0, 5, 300, 9), delta(0, 7)))
    request("continued_wrong", ids, continuation((1, 9), accepted, delta(7, 1 << 31), (6, b""), (6, b"")))
    request("continued_other_tokenizer", ids, continuation((2, proto((6, "U")))))
    request("continued_whole", ids, continuation((1, 3), accepted, delta(0, 1), (5, b"")))
    request("continued_empty", ids, (12, b""), (13, True))
    request("tools", (5, proto(message("user", "Hi"), (2, proto((1, "f"))), (3, proto((1, 3))))))
    request("unknown", ids, (99, 1))
    request("no_prompt", (2, "tiny"))
    request("other_model", (2, "m" * 257), ids)
    request("no_id", (1, "\n"), ids)
    request("response", (1, 0), accepted, delta(0, 1, 2), delta(1, 3), (4, proto((1, 0), (7, 1))), kind=RESPONSE)
    request("response_after_its_end", (4, proto((7, 2))), delta(0, 1), kind=RESPONSE)
    request("tokenize", (2, "a w1 w2"), (4, True), kind=TOKENIZE)
    request("tokenize_conversation", (3, talk[1]), kind=TOKENIZE)
    request("detokenize", (2, b"".join(map(varint, (72, 105, 0xc3, 300, 256)))), (3, True), kind=DETOKENIZE)
    request("detokenize_outside", (2, varint(301)), kind=DETOKENIZE)


def tokenizer_corpus() -> None:
    tokens = [bytes([b]) for b in range(256)] + [b"he", b"ll", b"hell", b"hello", b" w", b"\xc3\xa9"]
    base64_of = [base64.b64encode(token).decode() for token in tokens]
    tekken = {"config": {"pattern": r"\p{L}+|\p{N}|\s+|[^\s\p{L}\p{N}]+", "default_vocab_size": 263,
                         "default_num_special_tokens": 3},
              "vocab": [{"rank": i, "token_bytes": token} for i, token in enumerate(base64_of)],
              "special_tokens": [{"rank": i, "token_str": token, "is_control": True}
                                 for i, token in enumerate(("<unk>", "<s>", "</s>"))]}
    ranks = "".join(f"{token} {i}\n" for i, token in enumerate(base64_of)).encode()
    pieces = [("<unk>", 2, 0.0), ("<s>", 3, 0.0), ("</s>", 3, 0.0), ("[tag]", 4, 0.0)]
    pieces += [(f"<0x{b:02X}>", 6, 0.0) for b in range(256)]
    pieces += [(piece, 1, -float(i)) for i, piece in enumerate(
        ("\u2581", "he", "ll", "hell", "hello", "\u2581w", "h", "e", "l", "o", "w", "r", "d", "\u00e9"))]

    def model(kind):
        parts = [(1, proto((1, text), (2, score), *([(3, k)] if k != 1 else []))) for text, k, score in pieces]
        return proto(*parts, (2, proto((3, kind), (35, 1))), (3, proto((4, 0))))
    write("text_tokenizer_files_fuzz", "tekken", b"\0" + json.dumps(tekken).encode())
    write("text_tokenizer_files_fuzz", "ranks", b"\5" + ranks)
    write("text_tokenizer_files_fuzz", "bpe", b"\1" + model(2))
    write("text_tokenizer_files_fuzz", "unigram", b"\1" + model(1))
    write("text_tokenizer_files_fuzz", "cut", b"\1" + model(1)[:-7])


# Cursors: kind, place and value of a change, then text or bytes.
def cursor(name: str, data: bytes, kind=1, place=0, value=65) -> None:
    write("gateway_cursor_fuzz", name, bytes([kind, place, value]) + data)


def cursor_corpus() -> None:
    short_id, short_fingerprint = 1, 2
    exact, at_end, last, skips, one_unit = 1, 2, 4, 8, 16
    ids, text, reasoning = 1, 2, 4
    time = varint(1764333000)
    name = bytes([short_id | short_fingerprint]) + bytes(range(20)) + time
    events = varint(300)
    unit = varint(ids | text) + varint(40) + varint(170) + struct.pack("<I", 0xfedcba98)
    one = name + bytes([exact | one_unit]) + events + unit
    cursor("one_choice", one)
    cursor("changed", one, place=30, value=95)
    cursor("between", name + bytes([exact | skips]) + events + varint(3) + varint(1) + varint(reasoning) + varint(9)
           + varint(3) + unit + varint(0) + unit)
    cursor("end", b"\0\1a\0" + time + bytes([at_end | last | skips]) + events + varint(2) + varint(0) + varint(0)
           + varint(0))
    cursor("many_units", name + bytes([exact]) + events + varint(4096) + varint(0) * 4096)
    cursor("absurd_units", name + bytes([exact]) + events + varint(1 << 63))
    cursor("absurd_id", b"\0" + varint(1 << 62))
    text_of = b"AmFhYWEZAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    cursor("text", text_of, kind=0)
    cursor("no_base64", b"\xff=== \r\n", kind=0)
    cursor("other_request", b"AmJiYmI" + text_of, kind=0)


def key(name: str, value: bytes, now=1764333000) -> None:
    write("gateway_idempotency_fuzz", name, struct.pack("<q", now) + value)


def key_corpus() -> None:
    key("any", b"order 17")
    key("empty", b"")
    key("bytes", bytes(range(256))[1:])
    key("too_long", b"k" * 256)
    # The milliseconds of a UUID of version 7 are its first 48 bits.
    for name, milliseconds in (("uuid7", 1764333000_000), ("uuid7_late", (1 << 48) - 1), ("uuid7_early", 0)):
        digits = f"{milliseconds:012x}"
        key(name, f"{digits[:8]}-{digits[8:]}-7abc-9def-0123456789ab".encode())
    key("uuid7_capitals", b"019ACA40-0000-7ABC-9DEF-0123456789AB")
    key("uuid4", b"019aca40-0000-4abc-9def-0123456789ab")
    key("uuid7_wrong", b"019aca40-0000-7abc-9def-0123456789ag")
    key("long_ago", b"k", now=-(1 << 40))


def endpoint_slice(name: str, *addresses: str, family="IPv4", ready=None, ports=({"name": "grpc", "port": 50051},)) -> dict:
    conditions = {} if ready is None else {"ready": ready}
    return {"metadata": {"name": name, "resourceVersion": "7"}, "addressType": family, "ports": list(ports),
            "endpoints": [{"addresses": [address], "conditions": conditions} for address in addresses]}


def page(*items: dict, next_page="") -> str:
    return json.dumps({"metadata": {"resourceVersion": "5", "continue": next_page}, "items": items})


def event(kind: str, item: dict) -> str:
    return json.dumps({"type": kind, "object": item})


def discovery_corpus() -> None:
    def lines(name: str, *texts: str) -> None:
        write("gateway_slices_fuzz", name, "\n".join(texts).encode("latin-1"))

    def watch(name: str, text: str, piece=0, event_sixteenths=255) -> None:
        write("gateway_watch_fuzz", name, bytes([piece, event_sixteenths]) + text.encode("latin-1"))

    one, two = endpoint_slice("a", "10.0.0.1"), endpoint_slice("b", "10.0.0.2", "10.0.0.3", ready=True)
    six = endpoint_slice("c", "fd00::1", family="IPv6")
    gone = json.dumps({"type": "ERROR", "object": {"code": 410, "message": "too old"}})
    bookmark = event("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    lines("list", "!" + page(one, two), event("ADDED", six), page(six, next_page="n"))
    lines("events", "!" + page(one), event("MODIFIED", two), page(), event("DELETED", one), page(), bookmark, page(), gone)
    lines("kinds", "!" + page(endpoint_slice("a", "host", family="FQDN"), endpoint_slice("b", "10.0.0.1", ready=False),
                              endpoint_slice("c", "10.0.0.1", ports=({"name": "grpc", "port": 70000}, {"port": -1}))))
    lines("no_types", "!" + json.dumps({"metadata": {"resourceVersion": "5"}, "items": [
        1, None, [], {"metadata": 1, "endpoints": {}, "addressType": "IPv4", "ports": {"a": 1}},
        {"addressType": "IPv6", "endpoints": [1, {"addresses": []}, {"addresses": [3]}, {"addresses": "x"}]}]}))
    lines("deep", "!" + "[" * 100 + "]" * 100, "{" * 3, "")
    head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

    def chunks(text: str, size: int) -> str:
        parts = [text[i:i + size] for i in range(0, len(text), size)]
        return "".join(f"{len(part):x}\r\n{part}\r\n" for part in parts) + "0\r\n\r\n"

    text = "\n".join((event("ADDED", one), event("MODIFIED", two), bookmark, event("DELETED", one), ""))
    watch("chunked", head + chunks(text, 100), piece=7)
    watch("whole", f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}", piece=1)
    watch("until_its_end", "HTTP/1.0 200 OK\r\n\r\n" + text, piece=50)
    watch("cut", head + chunks(text, 100)[:300], piece=3)
    watch("gone", head + chunks(text + gone + "\n" + event("ADDED", one) + "\n", 1000), piece=100)
    watch("too_large", head + chunks(text, 1000), piece=9, event_sixteenths=4)
    watch("refused", "HTTP/1.1 403 Forbidden\r\n\r\n" + json.dumps({"message": "no"}), piece=2)
    watch("long_refusal", "HTTP/1.1 500 Oh\r\n\r\n" + "x" * 5000, piece=200)
    watch("continue", "HTTP/1.1 100 Continue\r\n\r\n" + head + chunks(text, 100), piece=5)
    watch("no_http", "\x16\x03\x01\x02\x00", piece=1)


def kserve_corpus() -> None:
    def tensor(name: bytes, datatype: bytes, size=1, contents=b"") -> bytes:
        return field(5, field(1, name) + field(2, datatype) + field(3, varint(size))
                     + (field(5, contents) if contents else b""))

    def text(name: bytes, value: bytes) -> bytes:
        return tensor(name, b"BYTES", contents=field(8, value))

    def parameter(name: bytes, choice: bytes) -> bytes:
        return field(4, field(1, name) + field(2, choice))

    once = field(1, b"m") + field(3, b"id") + text(b"text_input", b"once")
    stream = tensor(b"stream", b"BOOL", contents=field(1, b"\1"))
    write("kserve_infer_fuzz", "text", once)
    write("kserve_infer_fuzz", "stream", once + stream + parameter(b"max_tokens", field(2, 9)))
    write("kserve_infer_fuzz", "sampling", once + text(
        b"sampling_parameters", b'{"temperature":0.5,"n":2,"stop":["a"],"guided_choice":["x","y"]}')
        + field(6, field(1, b"num_output_tokens")))
    write("kserve_infer_fuzz", "raw", tensor(b"input_ids", b"INT32", 2) + tensor(b"stop_words", b"BYTES")
          + tensor(b"temperature", b"FP32") + field(7, struct.pack("<ii", 5, 70000))
          + field(7, struct.pack("<I", 3) + b"end") + field(7, struct.pack("<f", 0.5)))
    write("kserve_infer_fuzz", "raw_cut", tensor(b"text_input", b"BYTES") + field(7, struct.pack("<I", 9) + b"end"))
    write("kserve_infer_fuzz", "echo", once + tensor(b"exclude_input_in_output", b"BOOL", contents=field(1, b"\0"))
          + parameter(b"triton_enable_empty_final_response", field(1, 1)))


def vllm_corpus() -> None:
    tokens = field(1, b"id") + field(2, field(2, bytes([5, 6, 7])))
    write("vllm_request_fuzz", "tokens", tokens)
    write("vllm_request_fuzz", "stream", tokens + field(5, 1) + field(4, field(1, 0.5) + field(2, 0.9) + field(3, 40)
          + field(8, 9) + field(10, b"END") + field(11, bytes([8])) + field(15, 2) + field(22, 3) + field(23, 1)
          + field(24, 7) + field(26, field(1, 3) + field(2, -2.0)) + field(27, 100)))
    write("vllm_request_fuzz", "choice", field(3, b"once") + field(4, field(21, field(1, b"a") + field(1, b"b"))))
    write("vllm_request_fuzz", "schema", tokens + field(4, field(16, b'{"type":"object"}') + field(28, 1)))
    write("vllm_request_fuzz", "refused", tokens + field(7, b"x") + field(9, 1) + field(8, b"{}"))


def adapter_corpus() -> None:
    layer = "base_model.model.model.layers.0."
    shapes = {"self_attn.q_proj": (4, 4), "self_attn.k_proj": (2, 4), "self_attn.o_proj": (4, 4),
              "mlp.gate_proj": (6, 4), "mlp.down_proj": (4, 6)}
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2, "lora_alpha": 4, "bias": "none",
              "target_modules": sorted(module.split(".")[-1] for module in shapes), "lora_dropout": 0.1}

    def adapter(name: str, dtype="F32", rank=2, rename=lambda tensor: tensor, **more) -> None:
        size = 4 if dtype == "F32" else 2
        header, data = {}, b""
        for module, (rows, columns) in shapes.items():
            for part, shape in (("A", (rank, columns)), ("B", (rows, rank))):
                begin, count = len(data), shape[0] * shape[1]
                data += bytes((7 * i + len(module)) % 64 for i in range(count * size))
                header[rename(f"{layer}{module}.lora_{part}.weight")] = {
                    "dtype": dtype, "shape": shape, "data_offsets": [begin, len(data)]}
        text = json.dumps(config | more).encode()
        head = json.dumps(header).encode()
        write("model_adapter_fuzz", name,
              struct.pack("<H", len(text)) + text + struct.pack("<Q", len(head)) + head + data)

    adapter("plain")
    adapter("bf16", dtype="BF16", use_rslora=True)
    adapter("f16", dtype="F16", target_modules="all-linear")
    adapter("patterns", rank=3, rank_pattern={"q_proj": 3, r".*\.(k|o|gate|down)_proj": 3},
            alpha_pattern={r"^model\.layers\.\d+\.self_attn.q_proj": 0.5}, layers_to_transform=[0, 1])
    adapter("other_names", rename=lambda tensor: tensor.replace("model.model.", "model.model.language_model."))
    adapter("other_rank", rank=5)
    adapter("unknown_module", rename=lambda tensor: tensor.replace("q_proj", "k_proj_2"))
    adapter("dora", use_dora=True)
    adapter("later", of_a_later_release=[1])


if __name__ == "__main__":
    adapter_corpus()
    kserve_corpus()
    vllm_corpus()
    cursor_corpus()
    key_corpus()
    discovery_corpus()
    tokenizer_corpus()
    request_corpus()
    conversation_corpus()
    http_corpus()
