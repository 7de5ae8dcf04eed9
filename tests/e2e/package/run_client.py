#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One call of the installed package's client, told as lines of JSON on standard output.

    run_client.py '{"client": {"server": …}, "method": "chat", "arguments": [[…]], "options": {…}}'

A line {"text": …} a piece, then {"answers": …, "num_reconnects": …} or {"error": …}. With "cancel_after"
the generation is cancelled after so many pieces.
"""
import dataclasses
import json
import sys

import continuo


def tell(**line):
    print(json.dumps(line), flush=True)


def main():
    call = json.loads(sys.argv[1])
    with continuo.Client(**call["client"]) as client:
        try:
            result = getattr(client, call["method"])(*call["arguments"], **call.get("options", {}))
            if not isinstance(result, continuo.Generation):
                tell(result=result if isinstance(result, (str, list)) else result.name)
                return
            for number, text in enumerate(result.texts(), 1):
                tell(text=text)
                if number == call.get("cancel_after"):
                    result.cancel()
            tell(answers={index: dataclasses.asdict(answer)
                          for index, answer in result.answers.items()},
                 num_reconnects=result.num_reconnects,
                 completion_tokens=result.summary.usage.completion_tokens,
                 migrations=result.summary.migrations)
        except continuo.Error as error:
            tell(error=error.code.name, reason=error.reason, field=error.field,
                 message=error.message)
        except ValueError as error:
            tell(error="ValueError", message=str(error))


main()
