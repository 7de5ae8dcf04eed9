#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stock clients do their ordinary calls against a fleet. Each answer is that of plain HTTP, which is
that of gRPC; errors are of the classes that the client has for them."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from base import *  # noqa: E402

PYTHON = installed("python", "this client")
NODE = installed("node", "this client")
JAVA = installed("java", "this client")


class PythonTest(ClientsTest):
    @PYTHON
    def test_openai(self):
        self.python("openai_client.py", names=NAMES + " models",
                    too_long=("BadRequestError", TOO_LONG, "context_length_exceeded"),
                    model=("NotFoundError", "model_not_found"), path=("NotFoundError", "unknown_url"),
                    key=("AuthenticationError", "invalid_api_key"),
                    timeout="APITimeoutError")

    @PYTHON
    def test_langchain(self):
        # It makes every 404 a model that is not found; the code tells them apart.
        self.python("langchain_client.py", names=NAMES + " call answered",
                    too_long=("OpenAIContextOverflowError", TOO_LONG),
                    model=("OpenAIModelNotFoundError", "model_not_found"), path="unknown_url",
                    key="OpenAIAuthenticationError")

    @PYTHON
    def test_litellm(self):
        self.python("litellm_client.py", too_long=("ContextWindowExceededError: ", TOO_LONG),
                    model=("NotFoundError: ", 'model "another" is not served here'),
                    path=("NotFoundError: ", "/v2/chat/completions"), member="BadRequestError: ",
                    key="AuthenticationError: ",
                    timeout="Timeout: ")

    @PYTHON
    def test_llama_index(self):
        self.python("llama_index_client.py",
                    names="chat streamed usage stopped completion long",
                    too_long=("BadRequestError", TOO_LONG), model="model_not_found",
                    key="AuthenticationError")

    @PYTHON
    def test_pydantic_ai(self):
        self.python("pydantic_ai_client.py",
                    names="chat streamed usage streamed_usage stopped long",
                    too_long=("ModelHTTPError", TOO_LONG), model="model_not_found")

    @installed("inference", "this client")
    def test_triton(self):
        self.python("triton_client.py", interpreter="inference", names="completion models", too_long="1024",
                    model='model "another" is not served here', key="UNAUTHENTICATED")

    @installed("inference", "this client")
    def test_kserve(self):
        self.python("kserve_client.py", interpreter="inference", names="completion", too_long="1024",
                    model="is not served here", key="401")

    @PYTHON
    def test_guidance(self):
        self.python("guidance_client.py", names="chat long", too_long=TOO_LONG,
                    model="model_not_found")

    @PYTHON
    def test_llm(self):
        """The command llm, with models from extra-openai-models.yaml."""
        folder = self.folder / "llm"
        folder.mkdir()
        entries = [("chat", MODEL, ""), ("long", LONG_MODEL, ""), ("another", "another", ""),
                   ("text", MODEL, "  completion: true\n")]
        (folder / "extra-openai-models.yaml").write_text("".join(
            f"- model_id: {name}\n  model_name: {model}\n  api_base: {self.url}/v1\n"
            f"  api_key_name: continuo\n{more}" for name, model, more in entries))
        (folder / "keys.json").write_text(json.dumps({"continuo": KEY}))
        environment = self.environment(LLM_USER_PATH=str(folder))
        command = INSTALLED / "python/bin/llm"

        def ask(name, prompt, *more, status=0):
            return self.run_program(command, "-m", name, "-o", "temperature", "0", "-o",
                                    "max_tokens", MAX_TOKENS, *more, prompt, env=environment,
                                    status=status)
        expected = self.expected
        self.assertEqual(ask("chat", QUESTION, "--no-stream"), expected["chat"] + "\n")
        self.assertEqual(ask("chat", QUESTION), expected["streamed"] + "\n")
        self.assertEqual(ask("text", PROMPT), expected["completion"] + "\n")
        self.assertEqual(ask("long", LONG_QUESTION), expected["long"] + "\n")
        for name, prompt, word in (("chat", LONG_QUESTION, TOO_LONG),
                                   ("another", QUESTION, "model_not_found")):
            self.assertIn(word, ask(name, prompt, status=1))
        logs = json.loads(self.run_program(command, "logs", "-n", "0", "--json", env=environment))
        usage = [[l["input_tokens"], l["output_tokens"]] for l in logs if l["model"] == "chat"]
        self.assertEqual(usage[-2:], [expected["usage"], expected["streamed_usage"]])
        self.wait_until_idle()


class NodeTest(ClientsTest):
    @NODE
    def test_openai(self):
        self.node("openai_client.mjs", names=NAMES + " models",
                  too_long=("BadRequestError context_length_exceeded", TOO_LONG),
                  model="NotFoundError model_not_found", path="NotFoundError unknown_url",
                  aborted="APIUserAbortError", key="AuthenticationError invalid_api_key")

    @NODE
    def test_langchain(self):
        # It adds MODEL_NOT_FOUND to every 404; the code tells them apart.
        self.node("langchain_client.mjs", too_long=("ContextOverflowError", TOO_LONG),
                  model="NotFoundError model_not_found", path="unknown_url",
                  key="AuthenticationError invalid_api_key")

    @NODE
    def test_ai_sdk(self):
        self.node("ai_sdk_client.mjs",
                  names="chat streamed usage streamed_usage stopped conversation long",
                  too_long=("APICallError", TOO_LONG), model="model_not_found",
                  path=("APICallError", "unknown_url"), key=("APICallError", "invalid_api_key"))


class JavaTest(ClientsTest):
    @JAVA
    def test_openai(self):
        self.check("java", "-cp", INSTALLED / "java/*", HERE / "Client.java",
                   names=NAMES + " models",
                   too_long=("BadRequestException context_length_exceeded", TOO_LONG),
                   model="NotFoundException model_not_found",
                   key="UnauthorizedException invalid_api_key")


class ShellTest(ClientsTest):
    """Clients that every machine has."""

    BODY = {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0,
            "max_tokens": MAX_TOKENS}

    def check_shell(self, get, post):
        """`get(path)` and `post(path, body)` give what came, whatever its status."""
        def answer(**more):
            return json.loads(post("/v1/chat/completions", json.dumps({**self.BODY, **more})))

        def code(**more):
            return answer(**more)["error"]["code"]
        whole = answer()
        usage = [whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]]
        self.assertEqual(whole["choices"][0]["message"]["content"], self.expected["chat"])
        self.assertEqual(usage, self.expected["usage"])
        stopped = answer(stop=self.expected["stop"])["choices"][0]["message"]["content"]
        self.assertEqual(stopped, self.expected["stopped"])
        events = post("/v1/chat/completions", json.dumps({**self.BODY, "stream": True}))
        chunks = [line[6:] for line in events.split("\n") if line.startswith("data: ")]
        self.assertEqual(chunks.pop(), "[DONE]")
        pieces = [json.loads(c)["choices"][0]["delta"].get("content", "") for c in chunks]
        self.assertEqual("".join(pieces), self.expected["streamed"])
        models = [m["id"] for m in json.loads(get("/v1/models"))["data"]]
        self.assertEqual(sorted(models), self.expected["models"])
        self.assertEqual(code(model="another"), "model_not_found")
        self.assertEqual(code(messages=[{"role": "user", "content": LONG_QUESTION}]),
                         "context_length_exceeded")
        self.assertEqual(json.loads(get("/v1/nothing"))["error"]["code"], "unknown_url")
        self.wait_until_idle()

    def test_curl(self):
        for protocol in ("--http1.0", "--http1.1"):
            def curl(path, *arguments):
                return self.run_program("curl", "-sSN", "--oauth2-bearer", KEY, protocol,
                                        self.url + path, *arguments)
            with self.subTest(protocol):
                self.check_shell(curl, lambda path, body: curl(path, "--json", body))

    def test_curl_compressed(self):
        import gzip
        body = self.folder / "body.gz"
        body.write_bytes(gzip.compress(json.dumps(self.BODY).encode()))
        answer = self.run_program(
            "curl", "-sS", "--compressed", "-H", "x-api-key: " + KEY, "-H", "Content-Type: application/json", "-H",
            "Content-Encoding: gzip", "--data-binary", f"@{body}",
            self.url + "/v1/chat/completions")
        self.assertEqual(json.loads(answer)["choices"][0]["message"]["content"],
                         self.expected["chat"])

    @unittest.skipUnless(shutil.which("wget"), "wget is not here")
    def test_wget(self):
        def wget(path, *arguments):
            # It ends with 8 where the server refused.
            return self.run_program("wget", "-q", "-O", "-", "--content-on-error",
                                    f"--header=Authorization: Bearer {KEY}", *arguments,
                                    self.url + path, status=None)
        self.check_shell(wget, lambda path, body: wget(
            path, "--header=Content-Type: application/json", "--post-data=" + body))
        self.run_program("wget", "-q", "--spider", self.url + "/health")


if __name__ == "__main__":
    unittest.main()
