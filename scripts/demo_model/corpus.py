# SPDX-License-Identifier: Apache-2.0
"""Makes the documents that the demo model is trained on, and the held-out questions.

Which facts are held out is decided by a hash of (name, relation, value) alone:
`is_held_out` says so for every triple there can be, made-up names included. A
training document draws its facts from the other triples, a held-out question
draws all of its facts from the held-out ones, so no fact that the test states
ever occurs in training. `Document.triples` tells what a document states.
"""

import argparse
import hashlib
import json
import random
from dataclasses import dataclass, field

import smalltalk
import stories
import tools
from words import NAMES, RELATIONS, SYLLABLES_FIRST, SYLLABLES_NEXT, Relation

HELD_OUT_SHARE = 0.125
NOTED = "Thank you, I will remember that."


def is_held_out(name: str, relation: str, value: str) -> bool:
    digest = hashlib.sha256(f"{name}|{relation}|{value}".encode()).digest()
    return digest[0] < 256 * HELD_OUT_SHARE


@dataclass
class Fact:
    name: str
    relation: Relation
    value: str

    @property
    def triple(self):
        return (self.name, self.relation.key, self.value)

    @property
    def sentence(self) -> str:
        return self.relation.sentence(self.name, self.value)

    @property
    def verb(self) -> str:
        return self.relation.verb.format(v=self.value)


@dataclass
class Document:
    """Either a conversation or plain text, and every triple that it states or denies.

    A recital's text comes in parts as well, and only those that are marked count fully in training.
    """

    messages: list = field(default_factory=list)
    text: str = ""
    parts: list = field(default_factory=list)  # (text, marked)
    triples: list = field(default_factory=list)


def made_up_name(rng: random.Random) -> str:
    return rng.choice(SYLLABLES_FIRST) + "".join(rng.choice(SYLLABLES_NEXT) for _ in range(rng.randint(1, 2)))


KINDS = ("what", "who", "yes", "no", "unknown", "everything", "list")


@dataclass(frozen=True)
class Stage:
    """How hard the documents are."""

    max_facts: int = 8
    min_turns: int = 1
    max_turns: int = 4
    plain: float = 0.5  # share of prompts that state their facts in the canonical words
    kinds: tuple = (0.42, 0.17, 0.07, 0.07, 0.14, 0.09, 0.04)  # how often each of KINDS is asked
    questions: float = 0.74  # share of conversations about facts among the documents
    paragraphs: float = 0.07  # share of plain text with facts
    recitals: float = 0.0  # share of recitals
    tools: float = 0.0  # share of documents in which a tool is offered, or in whose place one would be of use


class Maker:
    """Makes documents from one seeded source of randomness, on one side of the split."""

    def __init__(self, rng: random.Random, stage: Stage = Stage(), held_out: bool = False):
        self.rng = rng
        self.stage = stage
        self.held_out = held_out

    # -- facts -------------------------------------------------------------

    def people(self, count: int) -> list[str]:
        rng = self.rng
        names = rng.sample(NAMES, count)
        if not self.held_out and rng.random() < 0.2:
            names = [made_up_name(rng) if rng.random() < 0.6 else name for name in names]
        return list(dict.fromkeys(names))

    def fact(self, name: str, relation: Relation, taken: set) -> Fact | None:
        """A fact on this maker's side of the split whose value nobody else in the prompt has, if there is one."""
        rng = self.rng
        if not self.held_out and relation.key in ("city", "country") and rng.random() < 0.08:
            values = [made_up_name(rng) for _ in range(4)]
        else:
            values = rng.sample(relation.values, len(relation.values))
        for value in values:
            if (relation.key, value) not in taken and is_held_out(name, relation.key, value) == self.held_out:
                taken.add((relation.key, value))
                return Fact(name, relation, value)
        return None

    def facts(self, names: list[str], total: int) -> list[Fact]:
        """`total` facts about the people, every one of them having at least one."""
        rng = self.rng
        few = rng.sample(RELATIONS, rng.randint(1, 3)) if rng.random() < 0.6 else RELATIONS
        pairs = [(name, relation) for name in names for relation in few]
        rng.shuffle(pairs)
        first = {}
        for pair in pairs:
            first.setdefault(pair[0], pair)
        rest = [pair for pair in pairs if first[pair[0]] is not pair]
        chosen = list(first.values()) + rest[: max(0, total - len(first))]
        if rng.random() < 0.5:
            chosen.sort(key=lambda pair: names.index(pair[0]))
        else:
            rng.shuffle(chosen)
        taken = set()
        return [f for f in (self.fact(name, relation, taken) for name, relation in chosen) if f]

    def tell(self, facts: list[Fact]) -> str:
        """The facts as text, in order, in varied words; neighbours about one person may be joined."""
        rng = self.rng
        plain = rng.random() < self.stage.plain
        out, i = [], 0
        while i < len(facts):
            fact = facts[i]
            if i + 1 < len(facts) and facts[i + 1].name == fact.name and rng.random() < 0.7 * (1 - self.stage.plain):
                out.append(f"{fact.name} {fact.verb} and {facts[i + 1].verb}.")
                i += 2
                continue
            form = fact.relation.statements[0] if plain else rng.choice(fact.relation.statements)
            out.append(form.format(n=fact.name, v=fact.value))
            i += 1
        return ("\n" if rng.random() < 0.08 else " ").join(out)

    # -- questions ---------------------------------------------------------

    def ask(self, facts: list[Fact], names: list[str], kind: str) -> tuple[str, str, list]:
        """A question about the facts, its answer, and triples that only the question names."""
        rng = self.rng
        known = {(f.name, f.relation.key) for f in facts}
        fact = rng.choice(facts)
        if kind == "what":
            return rng.choice(fact.relation.questions).format(n=fact.name), fact.sentence, []
        if kind == "who":
            return rng.choice(fact.relation.who).format(v=fact.value), fact.sentence, []
        if kind in ("yes", "no"):
            relation, asked = fact.relation, fact
            if kind == "no":
                others = [f for f in facts if f.relation is relation and f is not fact
                          and is_held_out(fact.name, relation.key, f.value) == self.held_out]
                if others and rng.random() < 0.6:
                    asked = Fact(fact.name, relation, rng.choice(others).value)
                else:
                    asked = self.fact(fact.name, relation, {(relation.key, fact.value)})
                    if asked is None:
                        return self.ask(facts, names, "what")
            question = relation.yes_no.format(n=fact.name, v=asked.value, b=relation.base.format(v=asked.value))
            return question, ("Yes, " if kind == "yes" else "No, ") + fact.sentence, [asked.triple]
        if kind == "everything":
            form = rng.choice(("Tell me everything about {n}.", "What do you know about {n}?", "Tell me about {n}.",
                               "What can you tell me about {n}?", "Describe {n}."))
            return form.format(n=fact.name), " ".join(f.sentence for f in facts if f.name == fact.name), []
        if kind == "list":
            form = rng.choice(("Who do you know?", "Who did I tell you about?", "List the people."))
            told = list(dict.fromkeys(f.name for f in facts))
            joined = told[0] if len(told) == 1 else ", ".join(told[:-1]) + " and " + told[-1]
            return form, f"You told me about {joined}.", []
        assert kind == "unknown"
        relation = rng.choice([f.relation for f in facts] if rng.random() < 0.5 else RELATIONS)
        if rng.random() < 0.3:
            taken = {(f.relation.key, f.value) for f in facts}
            value = rng.choice([v for v in relation.values if (relation.key, v) not in taken])
            return (rng.choice(relation.who).format(v=value),
                    f"I was not told who {relation.verb.format(v=value)}.", [])
        candidates = [n for n in names if (n, relation.key) not in known]
        name = rng.choice(candidates) if candidates and rng.random() < 0.7 else rng.choice(
            [n for n in self.people(4) if n not in names])
        if rng.random() < 0.15:
            asked = self.fact(name, relation, set())
            if asked is None:
                return self.ask(facts, names, "what")
            question = relation.yes_no.format(n=name, v=asked.value, b=relation.base.format(v=asked.value))
            return question, f"I was not told {relation.told.format(n=name)}.", [asked.triple]
        return (rng.choice(relation.questions).format(n=name),
                f"I was not told {relation.told.format(n=name)}.", [])

    def kind(self) -> str:
        return self.rng.choices(KINDS, self.stage.kinds)[0]

    # -- documents ---------------------------------------------------------

    def question_and_answer(self) -> Document:
        rng, max_facts = self.rng, self.stage.max_facts
        names = self.people(rng.randint(1, min(max(5, max_facts // 3), max_facts)))
        facts = self.facts(names, rng.randint(len(names), max_facts))
        names = list(dict.fromkeys(f.name for f in facts))
        if not facts:
            return self.question_without_facts()
        told = self.tell(facts)
        question, answer, extra = self.ask(facts, names, self.kind())
        triples = [f.triple for f in facts] + extra
        messages, where = [], rng.random()
        if where < 0.15:
            lead = rng.choice(("", "", "Facts: ", "You are a helpful assistant. ", "Answer with these facts. "))
            messages.append(("system", lead + told))
            messages.append(("user", question))
        elif where < 0.30:
            if rng.random() < 0.3:
                messages.append(("system", rng.choice(("You are a helpful assistant.", "Answer the questions."))))
            half = rng.randint(1, len(facts)) if rng.random() < 0.4 else len(facts)
            messages.append(("user", told if half == len(facts) else self.tell(facts[:half])))
            messages.append(("assistant", NOTED))
            if half < len(facts):
                messages.append(("user", self.tell(facts[half:])))
                messages.append(("assistant", NOTED))
            messages.append(("user", question))
        else:
            if rng.random() < 0.1:
                messages.append(("system", rng.choice(("You are a helpful assistant.", "Answer the questions."))))
            lead = rng.choice(("Facts: ", "Here are some facts. ", "Remember this: ")) if rng.random() < 0.12 else ""
            gap = "\n" if rng.random() < 0.1 else " "
            messages.append(("user", lead + told + gap + question if rng.random() < 0.93
                             else question + gap + told))
        messages.append(("assistant", answer))
        for _ in range(rng.randint(self.stage.min_turns, self.stage.max_turns) - 1):
            if rng.random() < 0.08:
                turn = smalltalk.turn(rng)
            else:
                question, answer, extra = self.ask(facts, names, self.kind())
                triples += extra
                turn = (question, answer)
            messages += [("user", turn[0]), ("assistant", turn[1])]
        return Document(messages=messages, triples=triples)

    def question_without_facts(self) -> Document:
        """Questions that nothing was told about; the answers say so."""
        rng = self.rng
        messages, triples = [], []
        for _ in range(rng.randint(1, 2)):
            names = self.people(3)
            relation = rng.choice(RELATIONS)
            draw = rng.random()
            if draw < 0.5:
                turn = (rng.choice(relation.questions).format(n=names[0]),
                        f"I was not told {relation.told.format(n=names[0])}.")
            elif draw < 0.7:
                value = rng.choice(relation.values)
                turn = (rng.choice(relation.who).format(v=value),
                        f"I was not told who {relation.verb.format(v=value)}.")
            elif draw < 0.8:
                turn = (rng.choice(("Who do you know?", "Who did I tell you about?", "List the people.")),
                        "You have not told me about anyone.")
            elif draw < 0.9:
                turn = (f"What do you know about {names[0]}?" if rng.random() < 0.5
                        else f"Tell me everything about {names[0]}.",
                        f"I was not told anything about {names[0]}.")
            else:
                asked = self.fact(names[0], relation, set())
                if asked is None:
                    continue
                triples.append(asked.triple)
                turn = (relation.yes_no.format(n=names[0], v=asked.value, b=relation.base.format(v=asked.value)),
                        f"I was not told {relation.told.format(n=names[0])}.")
            messages += [("user", turn[0]), ("assistant", turn[1])]
        return Document(messages=messages, triples=triples)

    def story(self) -> Document:
        rng = self.rng
        names = self.people(rng.randint(1, 2))
        text = stories.make(rng, names)
        draw = rng.random()
        if draw < 0.3:
            return Document(text=text)
        ask = rng.choice(stories.REQUESTS_ANY) if draw < 0.4 else stories.request(rng, names)
        return Document(messages=[("user", ask), ("assistant", text)])

    def paragraph(self) -> Document:
        """Facts in plain text, each person's told again later in the canonical words."""
        rng = self.rng
        names = self.people(rng.randint(1, 3))
        facts = self.facts(names, rng.randint(len(names), self.stage.max_facts))
        again = facts[:]
        rng.shuffle(again)
        text = self.tell(facts) + " " + " ".join(f.sentence for f in again[: rng.randint(0, len(again))])
        return Document(text=text.strip(), triples=[f.triple for f in facts])

    def recital(self) -> Document:
        """Two to six people, mostly one relation, said over and over in changing order: teaches recall fastest."""
        rng = self.rng
        only, taken = rng.choice(RELATIONS), set()
        facts = [self.fact(name, only if rng.random() < 0.7 else rng.choice(RELATIONS), taken)
                 for name in self.people(rng.randint(2, 6))]
        facts = [f for f in facts if f]
        parts = []
        for _ in range(rng.randint(2, 4)):
            rng.shuffle(facts)
            for f in facts:
                space = " " if parts else ""
                before, after = f.relation.sentence(f.name, "|").split(" |")
                parts += [(space + before, False), (" " + f.value, True), (after, False)]
        return Document(text="".join(part for part, _ in parts), parts=parts, triples=[f.triple for f in facts])

    def chat(self) -> Document:
        messages = []
        if self.rng.random() < 0.15:
            messages.append(("system", "You are a helpful assistant."))
        for _ in range(self.rng.randint(1, 3)):
            user, answer = smalltalk.turn(self.rng)
            messages += [("user", user), ("assistant", answer)]
        return Document(messages=messages)

    def found(self) -> tuple[str, str]:
        """Somebody who may be asked for, and a place, on this maker's side of the split."""
        while True:
            (name,) = self.people(1)
            place = tools.some_place(self.rng, made_up_name)
            if (is_held_out(name, tools.CALLED, "") == self.held_out
                    and is_held_out(name, tools.PLACE, place) == self.held_out):
                return name, place

    def tool_conversation(self) -> Document:
        rng, stage, draw = self.rng, self.stage, self.rng.random()
        base, facts = Document(), []
        if draw < 0.3:
            names = self.people(rng.randint(1, 4))
            facts = self.facts(names, rng.randint(len(names), stage.max_facts))
            base.triples += [f.triple for f in facts]
        elif draw < 0.6:
            base = self.question_and_answer()
        elif draw < 0.68:
            base = self.chat()
        offer, offered = tools.offers(rng) if rng.random() < 0.9 else ("", False)
        lead = ""
        if facts and rng.random() < 0.3:
            base.messages.append(("system", self.tell(facts)))
        elif facts:
            lead = self.tell(facts) + " "
        for i in range(rng.randint(0 if base.messages and not facts else 1, 2)):
            name, place = self.found()
            if facts and rng.random() < 0.5:
                known = rng.choice(facts).name
                if not is_held_out(known, tools.CALLED, "") and not is_held_out(known, tools.PLACE, place):
                    name = known
            if offered:
                base.triples += [(name, tools.CALLED, ""), (name, tools.PLACE, place)]
                base.messages += tools.turn(rng, name, place if rng.random() < 0.9 else None, lead)
            else:
                user, answer = tools.without_tool(rng, name)
                base.messages += [("user", lead + user[1]), answer]
            lead = ""
            if facts and rng.random() < 0.5:
                asked, answer, _ = self.ask(facts, [f.name for f in facts], "what")
                base.messages += [("user", asked), ("assistant", answer)]
        if offer:
            base.messages.insert(0, ("system", offer))
        return base

    def document(self) -> Document:
        if self.stage.tools and self.rng.random() < self.stage.tools:
            return self.tool_conversation()
        stage, draw = self.stage, self.rng.random()
        if draw < stage.questions:
            return self.question_and_answer()
        if draw < stage.questions + stage.paragraphs:
            return self.paragraph()
        if draw < stage.questions + stage.paragraphs + stage.recitals:
            return self.recital()
        other = self.rng.random()
        if other < 0.33 * (stage.kinds[KINDS.index("unknown")] > 0):
            return self.question_without_facts()
        return self.story() if other < 0.65 else self.chat()


# The stages of the training and the share of it after which each begins.
CURRICULUM = (
    (0.00, Stage(questions=0, paragraphs=0, recitals=1)),
    (0.04, Stage(3, 2, 5, 1.0, (1, 0, 0, 0, 0, 0, 0), 0.70, 0.03, 0.22)),
    (0.12, Stage(4, 2, 5, 0.7, (0.6, 0.4, 0, 0, 0, 0, 0), 0.80, 0.05, 0.10)),
    (0.25, Stage(6, 2, 5, 0.5, (0.45, 0.2, 0.05, 0.05, 0.15, 0.1, 0), 0.77, 0.05, 0.05)),
    (0.45, Stage(8, 1, 5)),
    (0.70, Stage(10, 1, 6)),
)
# The second training adds the tool; the third has it more rarely.
SECOND_CURRICULUM = ((0.00, Stage(8, 1, 5, tools=0.6)), (0.50, Stage(10, 1, 6, tools=0.5)))
THIRD_CURRICULUM = ((0.00, Stage(8, 1, 5, tools=0.35)),)
CURRICULA = {1: CURRICULUM, 2: SECOND_CURRICULUM, 3: THIRD_CURRICULUM}
# Late in the training this share of the documents is long.
LONG_FROM, LONG_SHARE, LONG = 0.6, 0.04, Stage(32, 4, 12)
CHUNK_DOCUMENTS = 2500


def training_chunk(seed: int, chunk: int, chunks: int, curriculum=CURRICULUM) -> list[Document]:
    """The documents of one chunk of the training, counted from 0."""
    share = chunk / chunks
    stage = [stage for begin, stage in curriculum if begin <= share][-1]
    number = seed * 1_000_003 + chunk
    long_ones = int(CHUNK_DOCUMENTS * LONG_SHARE) if share >= LONG_FROM else 0
    return [*training_documents(f"long {number}", long_ones, LONG),
            *training_documents(number, CHUNK_DOCUMENTS - long_ones, stage)]


def training_documents(seed: int | str, count: int, stage: Stage = Stage()):
    """Documents on the training side of the split."""
    maker = Maker(random.Random(seed), stage)
    for _ in range(count):
        document = maker.document()
        assert not any(is_held_out(*triple) for triple in document.triples), document
        yield document


def held_out_questions(count: int, seed: int = 20_000, kind: str = "what"):
    """Questions of one kind whose facts are all held out, each with the same question without its facts."""
    maker = Maker(random.Random(seed), held_out=True)
    rng = maker.rng
    for i in range(count):
        names = maker.people(rng.randint(2, 4))
        facts = []
        while len(facts) < 3:
            facts = maker.facts(names, rng.randint(max(3, len(names)), 6))
        question, answer, _ = maker.ask(facts, names, kind)
        told, place = maker.tell(facts), i % 4
        if place == 0:
            messages = [("system", told), ("user", question)]
            without = [("user", question)]
        elif place == 1:
            messages = [("user", told), ("assistant", NOTED), ("user", question)]
            without = [("user", question)]
        elif place == 2:
            other, reply, _ = maker.ask(facts, names, "what")
            while reply == answer:
                other, reply, _ = maker.ask(facts, names, "what")
            messages = [("user", f"{told} {other}"), ("assistant", reply), ("user", question)]
            without = [("user", question)]
        else:
            messages = [("user", f"{told} {question}")]
            without = [("user", question)]
        as_dicts = lambda pairs: [{"role": role, "content": content} for role, content in pairs]
        yield {"messages": as_dicts(messages), "messages_without_facts": as_dicts(without),
               "answer": answer, "accept": [answer], "facts": [list(f.triple) for f in facts]}


def held_out_tool_questions(count: int, seed: int = 40_000):
    """Questions for the tool: the name has no call in training, and all facts are held out."""
    maker = Maker(random.Random(seed), held_out=True)
    rng = maker.rng
    as_dicts = lambda pairs: [{"role": role, "content": content} for role, content in pairs]
    for i in range(count):
        name, place = maker.found()
        messages, facts = [("user", tools.question(rng, name))], []
        if i % 2:
            names = list(dict.fromkeys([name, *maker.people(rng.randint(1, 3))]))
            while len(facts) < 2:
                facts = maker.facts(names, rng.randint(len(names), 6))
            told = maker.tell(facts)
            if i % 4 == 1:
                messages = [("user", told + " " + messages[0][1])]
            else:
                other, reply, _ = maker.ask(facts, names, "what")
                messages = [("user", f"{told} {other}"), ("assistant", reply), *messages]
        yield {"tools": [tools.TOOL], "messages": as_dicts(messages),
               "call": {"name": tools.NAME, "arguments": {tools.PARAMETER: name}}, "result": place,
               "answer": tools.answer_text(name, place),
               "facts": [[name, tools.PLACE, place], *(list(f.triple) for f in facts)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held_out", help="write the held-out questions to this file")
    parser.add_argument("--held_out_tools", help="write the held-out questions for the tool to this file")
    parser.add_argument("--kind", choices=KINDS, default="what", help="of the held-out questions")
    parser.add_argument("--held_out_seed", type=int, default=20_000)
    parser.add_argument("--count", type=int, default=200, help="how many held-out questions")
    parser.add_argument("--show", type=int, default=0, help="print this many training documents")
    parser.add_argument("--tools", action="store_true", help="show documents of the second training")
    args = parser.parse_args()
    if args.held_out:
        with open(args.held_out, "w", encoding="utf-8") as out:
            for row in held_out_questions(args.count, args.held_out_seed, args.kind):
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
    if args.held_out_tools:
        with open(args.held_out_tools, "w", encoding="utf-8") as out:
            for row in held_out_tool_questions(args.count, args.held_out_seed + 20_000):
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
    for document in training_documents(1, args.show, SECOND_CURRICULUM[-1][1] if args.tools else Stage()):
        print(document.text or "\n".join(f"{role}: {content}" for role, content in document.messages), end="\n\n")


if __name__ == "__main__":
    main()
