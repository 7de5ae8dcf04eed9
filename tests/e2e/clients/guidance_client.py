# SPDX-License-Identifier: Apache-2.0
"""guidance: its OpenAI-like model, free generation; stops it does not have for
servers."""
from ask import *
import guidance
from guidance import gen
from guidance.models import OpenAI


def ask(model, question):
    """guidance streams every answer."""
    lm = OpenAI(model, echo=False, api_key=KEY, base_url=BASE_URL, max_retries=0)
    with guidance.user():
        lm += question
    with guidance.assistant():
        # It leaves a temperature of 0 out of the request; this one takes the likeliest token too.
        lm += gen("answer", temperature=1e-6, max_tokens=MAX_TOKENS)
    return lm["answer"]


tell(chat=ask(MODEL, QUESTION), long=ask(LONG_MODEL, LONG_QUESTION),
     errors={
         "too_long": error_of(ask, MODEL, LONG_QUESTION),
         "model": error_of(ask, "another", QUESTION),
     })
