# SPDX-License-Identifier: Apache-2.0
"""Load for servers with OpenAI's interface: completions of token ids, streamed, a closed loop. The
same code drives every server."""
import asyncio
import json
import random
import statistics
import time


class Plan:
    """Prompts and lengths, drawn from a seed: exponential lengths, cut at eight times the mean."""

    def __init__(self, requests, prompt_tokens, mean, seed, vocabulary):
        rng = random.Random(f"load {seed}")
        self.items = []
        for _ in range(requests):
            prompt = [rng.randrange(vocabulary) for _ in range(prompt_tokens)]
            length = min(8 * mean, max(1, round(rng.expovariate(1 / mean))))
            self.items.append((prompt, length))


async def read_head(reader):
    """The status code, whether the body is chunked."""
    status = int((await reader.readline()).split()[1])
    chunked = False
    while line := (await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        chunked |= name.lower() == "transfer-encoding" and "chunked" in value.lower()
    return status, chunked


async def body_parts(reader, chunked):
    while chunked:
        size = int((await reader.readline()).split(b";")[0], 16)
        if size == 0:
            return
        yield await reader.readexactly(size)
        await reader.readline()
    while part := await reader.read(1 << 16):
        yield part


async def complete(host, port, model, prompt, tokens, members=None):
    """One request: when it was sent, when text came, the tokens as the server counts, the text. `members`
    are more of its body."""
    body = json.dumps({"model": model, "prompt": prompt, "max_tokens": tokens, "stream": True,
                       "temperature": 0, "ignore_eos": True,
                       "stream_options": {"include_usage": True}, **(members or {})}).encode()
    sent = time.perf_counter()
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 22)
    try:
        head = (f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n")
        writer.write(head.encode() + body)
        status, chunked = await read_head(reader)
        times, text, counted, rest = [], "", None, b""
        async for part in body_parts(reader, chunked):
            now = time.perf_counter()
            if status != 200:
                raise RuntimeError(f"HTTP {status}: {part[:300]!r}")
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                if not line.startswith(b"data:") or line.strip() == b"data: [DONE]":
                    continue
                event = json.loads(line[5:])
                if "error" in event:
                    raise RuntimeError(str(event)[:300])
                if event.get("usage"):
                    counted = event["usage"]["completion_tokens"]
                new = "".join(c.get("text") or "" for c in event.get("choices") or [])
                if new:
                    times.append(now)
                    text += new
        if counted != tokens:
            raise RuntimeError(f"{counted} tokens, not {tokens}")
        return sent, times, counted, text
    finally:
        writer.close()


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, round(part * (len(values) - 1)))] if values else None


def summarize(answers, seconds):
    first = [times[0] - sent for sent, times, _, _ in answers if times]
    gaps = [b - a for _, times, _, _ in answers for a, b in zip(times, times[1:])]
    tokens = sum(counted for _, _, counted, _ in answers)
    return {"seconds": seconds, "requests": len(answers), "output_tokens": tokens,
            "output_tokens_per_second": tokens / seconds,
            "time_to_first_token_s": {"p50": percentile(first, 0.5),
                                      "p99": percentile(first, 0.99)},
            "inter_token_s": {"p50": percentile(gaps, 0.5), "p99": percentile(gaps, 0.99),
                              "mean": statistics.mean(gaps) if gaps else None}}


async def _drive(address, model, items, streams, members):
    host, port = address.rsplit(":", 1)
    answers, waiting = [], iter(items)

    async def one_stream():
        for prompt, tokens in waiting:
            answers.append(await complete(host, int(port), model, prompt, tokens, members))

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(streams):
            group.create_task(one_stream())
    return answers, time.perf_counter() - begin


def drive(address, model, items, streams, members=None):
    """Requests one after another on each of so many streams. The first error ends it."""
    return summarize(*asyncio.run(_drive(address, model, items, streams, members)))


def first_texts(address, model, prompts):
    """The text of each prompt's most likely next token."""
    host, port = address.rsplit(":", 1)
    return [asyncio.run(complete(host, int(port), model, p, 1))[3] for p in prompts]
