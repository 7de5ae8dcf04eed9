#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps the house: sizes of folders and classes, paragraphs, citations, and the table of folders.

    tests/structure/house.py           checks; exit code 1 and a line for each fault
    tests/structure/house.py --write   writes the table of folders into docs/architecture.md first

A folder has at most 24 source files, a class in a header at most 40 methods, a paragraph of Markdown at
most 120 words. Every `exactness: name` in a source is a heading of docs/exactness.md; every relative link of
a Markdown file leads to a file and, with #anchor, to a heading of it. Every file that a comment of a source
names with a folder, such as docs/scheduling.md, exists. So do the files, folders, tests, classes, functions,
constants and flags with an underscore that a Markdown file names between backticks.
"""
import collections
import fnmatch
import pathlib
import re
import sys

from layout import ALLOWED, ROOT, SOURCES, folder_of, repository_files

MAX_FILES, MAX_METHODS, MAX_WORDS = 24, 40, 120
TABLE = "docs/architecture.md"
FILE_ENDS = "md|h|cc|cu|rs|py|sh|proto|js|json|yaml|txt|cmake"
BEGIN, END = "<!-- folders:begin -->", "<!-- folders:end -->"


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def folder_errors(files):
    sizes = collections.Counter(str(pathlib.PurePath(name).parent) for name in files
                                if name.endswith(SOURCES) and name.startswith(("kernels/", "services/", "tests/")))
    return [f"{folder}: {n} source files, at most {MAX_FILES}" for folder, n in sorted(sizes.items())
            if n > MAX_FILES]


def without_comments(text):
    """C++ with comments and the contents of literals taken out."""
    return re.sub(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', " ", text,
                  flags=re.S)


def class_bodies(text):
    """(name, body) of each class and struct of a header, nested ones too."""
    for match in re.finditer(r"\b(?:class|struct)\s+(?:\w+\([^)]*\)\s+|ABSL_\w+\s+)?(\w+)(?:\s+final)?\s*(?::[^;{]*)?\{",
                             text):
        depth, at = 1, match.end()
        while at < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        yield match.group(1), text[match.end():at - 1]


def num_methods(body):
    """Member functions that are declared or defined directly in a class body."""
    count, depth, statement = 0, 0, ""

    def is_method(words):
        words = re.sub(r"^\s*(?:(?:public|protected|private)\s*:)+", "", words).strip()
        words = re.sub(r"\bABSL_\w+\s*(\([^()]*\))?", "", words)
        words = re.sub(r"\bexplicit\(.*?\)", "", words)
        if not words or re.match(r"(using|friend|static_assert|enum|class|struct|union|typedef)\b", words):
            return False
        head = words.split("=")[0] if "operator" not in words else words
        return re.search(r"[\w>~=\]\[+*-]\s*\(", head) is not None

    for char in body:
        if char == "{":
            if depth == 0 and is_method(statement):
                count += 1
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                statement = ""
        elif depth == 0:
            if char == ";":
                count += is_method(statement)
                statement = ""
            else:
                statement += char
                if re.search(r"\b(public|protected|private)\s*:$", statement):
                    statement = ""
    return count


def class_errors(files):
    errors = []
    for name in files:
        if name.endswith(".h") and name.startswith(("kernels/", "services/")):
            for owner, body in class_bodies(without_comments(read(name))):
                if (n := num_methods(body)) > MAX_METHODS:
                    errors.append(f"{name}: {owner} has {n} methods, at most {MAX_METHODS}")
    return errors


def paragraphs(text):
    """(line, words) of each paragraph and list item; code, tables, headings and comments are none."""
    fenced, begin, words = False, 0, []
    for number, line in enumerate(text.split("\n") + [""], 1):
        stripped = line.strip()
        if stripped.startswith(("```", "~~~")):
            fenced = not fenced
            stripped = ""
        elif fenced or stripped.startswith(("|", "#", "<", "![", "[![")) or line.startswith("    " * 2):
            stripped = ""
        if not stripped or re.match(r"([*+-]|\d+[.)]) ", stripped):
            if words:
                yield begin, words
            begin, words = number, []
        words += stripped.split()
    if words:
        yield begin, words


def headings(text):
    """Anchors of a Markdown file, as GitHub makes them."""
    found, text = set(), re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.S | re.M)
    for heading in re.findall(r"^#+\s+(.+?)\s*$", text, re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        found.add(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-"))
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def markdown_errors(files):
    errors = []
    for name in (f for f in files if f.endswith(".md")):
        text = read(name)
        for line, words in paragraphs(text):
            if len(words) > MAX_WORDS:
                errors.append(f"{name}:{line}: a paragraph of {len(words)} words, at most {MAX_WORDS}")
        prose = re.sub(r"`[^`\n]*`", "", re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.S | re.M))
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = ((ROOT / name).parent / path).resolve() if path else ROOT / name
            if not file.exists():
                errors.append(f"{name}: the link {target} leads nowhere")
            elif anchor and file.suffix == ".md" and anchor not in headings(file.read_text(encoding="utf-8")):
                errors.append(f"{name}: the link {target} leads to no heading")
    return errors


def citation_errors(files):
    rules = headings(read("docs/exactness.md"))
    errors = []
    for name in files:
        if not name.endswith(SOURCES + (".sh", ".md", ".proto", ".txt", ".cmake")) or name.startswith("tests/structure/"):
            continue
        for cited in re.findall(r"\(exactness:\s+(?:(?://|#|\*)\s*)?([^)]*)\)", read(name)):
            for rule in re.split(r",\s*(?://\s*|#\s*)?", cited.strip()):
                rule = re.sub(r"\s*\n\s*(//|#)\s*", "", rule).strip("`* ")
                if rule not in rules:
                    errors.append(f"{name}: exactness: {rule} is no heading of docs/exactness.md")
    return errors


def comment_errors(files):
    ends = {"/".join(parts[i:]) for parts in (name.split("/") for name in files) for i in range(len(parts))}
    errors = []
    for name in (f for f in files if f.endswith(SOURCES)):
        for comment in re.findall(r"(?:^|\s)//(.*)", read(name)):
            for cited in re.findall(r"(?<![\w./<$*:-])((?:[\w.-]+/)+[\w-]+\.(?:md|h|cc|cu|py|sh|proto))\b", comment):
                if cited not in ends:
                    errors.append(f"{name}: {cited} is no file of the repository")
    return errors


def name_errors(files):
    """Markdown files name, between backticks, what is there. A path is a part of one of the repository;
    `*` stands for anything, and the end of a file's name may be left out. What builds make, and names with a word in
    capitals, are not looked at, nor are reports of measurements, which tell of another day."""
    parts = [name.split("/") for name in files]
    ends = {"/".join(p[i:j]) for p in parts for j in range(1, len(p) + 1) for i in range(j)}
    stems = {re.sub(r"\.\w+$", "", end) for end in ends}
    tops, folders = {p[0] for p in parts}, {"/".join(p[:j]) for p in parts for j in range(len(p))}
    words, cases, foreign = set(), set(), set()
    for name in (f for f in files if f.endswith(SOURCES + (".proto", ".rs", ".js", ".sh", ".txt", ".yaml", ".tpl"))
                 or f.endswith(".py") and not f.startswith("tests/structure/")):
        text = read(name)
        words |= set(re.findall(r"\w+", text))
        foreign |= set(re.findall(r"#include [<\"]([\w.]+)[>\"]", text))
        cases |= set(re.findall(r"\bTEST(?:_[FP])?\(\s*(\w+,\s*\w+)\s*\)", text))
    cases = {re.sub(r",\s*", ".", case) for case in cases}

    def is_there(path):
        if path.startswith("build/") or re.search(r"(?:^|/)[A-Z]+(?:[/.]|$)", path):
            return True
        path = path.rstrip("/")
        return path in ends or "*" in path and bool(fnmatch.filter(ends, path))

    errors = []
    told_of_today = (f for f in files if f.endswith(".md") and f != "CHANGELOG.md"
                     and not f.startswith("tests/bench/results/"))
    for name in told_of_today:
        prose = re.sub(r"^(```|~~~).*?^\1", "", read(name), flags=re.S | re.M)
        for told in re.findall(r"`([^`\n]+)`", prose):
            if re.fullmatch(r"(?:[\w.*-]+/)+(?:[\w*-][\w.*-]*\.(?:%s))?|[\w*-]+\.(?:h|cc|cu|rs|proto)" % FILE_ENDS, told):
                right = told.startswith(("foo_", "-")) or told in foreign or is_there(told)
            elif re.fullmatch(r"[\w-]+(?:/[\w-]+)+", told):
                first, folder = told.split("/")[0], name.rpartition("/")[0]
                is_path = first in tops or f"{folder}/{first}" in folders
                is_ctest = folder == f"tests/{first}"
                right = not is_path or is_ctest or told in stems or is_there(told)
            elif re.fullmatch(r"\w+Test\.\w+", told):
                right = told in cases
            elif re.fullmatch(r"--[a-z]+_[a-z0-9_]+", told):
                right = told[2:] in words
            elif re.fullmatch(r"[A-Z]\w*::\w+(?:\(\))?|[A-Z][a-z]+[A-Z]\w*(?:\(\))?|k[A-Z]\w+", told):
                right = "Foo" in told or set(re.findall(r"\w+", told)) <= words
            else:
                continue
            if not right:
                errors.append(f"{name}: `{told}` is nothing of the repository")
    return errors


def folder_rows(files):
    """Folder -> (files, lines, arrows) of the sources."""
    rows = {folder: [0, 0, ALLOWED[folder].split()] for folder in ALLOWED}
    for name in files:
        folder = folder_of(name)
        if name.endswith(SOURCES + (".proto", ".html")) and folder in rows:
            rows[folder][0] += 1
            rows[folder][1] += read(name).count("\n")
    return rows


def table(rows):
    def short(folder):
        return folder.removeprefix("services/")
    lines = ["| folder | files | lines | may include |", "| --- | --: | --: | --- |"]
    for folder, (num_files, num_lines, arrows) in sorted(rows.items()):
        lines.append(f"| `{folder}` | {num_files} | {num_lines} | {' '.join(f'`{short(a)}`' for a in sorted(arrows))} |")
    return "\n".join(lines)


def table_errors(files):
    """Folders and arrows are as they are; files and lines may have changed by a fifth since."""
    text = read(TABLE)
    if BEGIN not in text:
        return [f"{TABLE}: no {BEGIN}"]
    stands = text.split(BEGIN)[1].split(END)[0].strip().split("\n")[2:]
    wanted = table(folder_rows(files)).split("\n")[2:]

    def parts(line):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        return (cells[0], cells[3]), [int(cells[1]), int(cells[2])]

    told, true = dict(map(parts, stands)), dict(map(parts, wanted))
    if told.keys() != true.keys() or any(abs(a - b) > max(b / 5, 2) for key in true
                                         for a, b in zip(told[key], true[key])):
        return [f"{TABLE}: the table of folders is out of date, tests/structure/house.py --write makes it"]
    return []


def main():
    files = repository_files()
    if sys.argv[1:] == ["--write"]:
        text = read(TABLE)
        head, rest = text.split(BEGIN)
        (ROOT / TABLE).write_text(f"{head}{BEGIN}\n{table(folder_rows(files))}\n{END}{rest.split(END)[1]}",
                                  encoding="utf-8")
    errors = (folder_errors(files) + class_errors(files) + markdown_errors(files) + citation_errors(files)
              + comment_errors(files) + name_errors(files) + table_errors(files))
    for error in errors:
        print(error)
    print(f"{len(files)} files, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
