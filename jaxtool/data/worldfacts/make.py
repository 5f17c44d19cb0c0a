"""Writes WorldFacts: `python -m jaxtool.data.worldfacts.make OUT`.  Host code.

In: the packages `countryinfo` and `mendeleev` (README.md has the versions), `cleaning.json` and the
thoughts of the demonstrations below.  Out: corpus.jsonl, train.jsonl, eval.jsonl and
demonstrations.txt in the folder OUT, the same bytes every time.  The documents of the demonstrations
are what the search tool finds.
"""

import argparse
import json
import pathlib
from typing import Any

from jaxtool.data.worldfacts.facts import load_countries, load_elements
from jaxtool.data.worldfacts.passages import Passage, corpus
from jaxtool.data.worldfacts.questions import split
from jaxtool.tools.bm25 import Bm25, Corpus

TOP_K = 2  # documents of a demonstrated search

# question, then (thought, query) per search, then (thought, answer)
DEMONSTRATIONS = (
    (
        "What is the symbol of the element tungsten?",
        (("I need to find the symbol of tungsten. I will search for it.", "symbol of tungsten"),),
        ("The document says the symbol of tungsten is W. So the answer is W.", "W"),
    ),
    (
        "What is the currency of the country whose capital is Nairobi?",
        (
            (
                "I need to find the country whose capital is Nairobi. I will search for it.",
                "country whose capital is Nairobi",
            ),
            (
                "The document says the country is Kenya. I need to find its currency. I will search for it.",
                "currency of Kenya",
            ),
        ),
        (
            "The document says the currency is the Kenyan shilling. So the answer is Kenyan shilling.",
            "Kenyan shilling",
        ),
    ),
    (
        "Who discovered the element iodine?",
        (("I need to find the discoverer of iodine. I will search for it.", "discoverer of iodine"),),
        (
            "The document says Bernard Courtois discovered iodine. So the answer is Bernard Courtois.",
            "Bernard Courtois",
        ),
    ),
    (
        "What is the demonym of the country whose capital is Lima?",
        (
            (
                "I need to find the country whose capital is Lima. I will search for it.",
                "country whose capital is Lima",
            ),
            (
                "The document says the country is Peru. I need to find its demonym. I will search for it.",
                "demonym of Peru",
            ),
        ),
        ("The document says the demonym of Peru is Peruvian. So the answer is Peruvian.", "Peruvian"),
    ),
)


def contents(passage: Passage) -> str:
    title, text = passage
    return f'"{title}"\n{text}'


def demonstrations(passages: list[Passage]) -> str:
    """The demonstrations with what the search tool finds, in the whitespace of real turns."""
    search = Bm25(Corpus(tuple((f'"{title}"', text) for title, text in passages)), TOP_K)
    blocks = []
    for question, searches, (thought, answer) in DEMONSTRATIONS:
        turns = [
            f"<think>{reason}</think><search>{query}</search>\n<information>{search(query)[1]}</information>\n"
            for reason, query in searches
        ]
        turns.append(f"<think>{thought}</think><answer>{answer}</answer>")
        blocks.append(f"Example Problem: {question}\nExample Solution: {''.join(turns)}\n")
    return "\n".join(blocks)


def write_jsonl(path: pathlib.Path, rows: list[dict[str, Any]]) -> None:
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows),
        encoding="utf-8",
    )


def make(out: pathlib.Path) -> None:
    countries, elements = load_countries(), load_elements()
    passages = corpus(countries, elements)
    train, held_out = split(countries, elements)
    out.mkdir(parents=True, exist_ok=True)
    write_jsonl(
        out / "corpus.jsonl", [{"id": str(i), "contents": contents(p)} for i, p in enumerate(passages)]
    )
    write_jsonl(out / "train.jsonl", [c.row() for c in train])
    write_jsonl(out / "eval.jsonl", [c.row() for c in held_out])
    (out / "demonstrations.txt").write_text(demonstrations(passages), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    make(parser.parse_args().out)
