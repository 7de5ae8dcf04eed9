# SPDX-License-Identifier: Apache-2.0
"""The classes that the clients make structured answers into, and the tool as a class."""
from typing import Literal

from ask import *
from pydantic import BaseModel, Field

OPTIONS = {"temperature": 0, "max_tokens": 400}


class Answer(BaseModel, extra="forbid"):
    name: Literal["Mira", "Tom"]
    city: Literal["Oslo", "Lisbon"]
    number: int = Field(ge=0, le=9)


class FindPerson(BaseModel, extra="forbid"):
    """Tells where somebody is."""
    name: str
