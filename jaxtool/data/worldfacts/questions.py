"""The questions: one-hop and two-hop, in several phrasings, split by what they are about.

Host code.  In: records of `facts.py`.  Out: rows of FlashRAG's schema, in two lists.  Each question
carries the countries and elements whose facts it needs, in every hop; each of these is in one part
(train, eval or demonstrations), and a question is kept only if all of its own are in the same part.
So no fact of an evaluation question occurs in a training question, in any phrasing or hop.
"""

import dataclasses
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from jaxtool.data.worldfacts.facts import Country, Element, load_cleaning, unique

EVAL_SHARE = 0.3  # of the countries, and of the elements
DEMONSTRATED = {"KEN", "PER", "W", "I"}  # subjects of demonstrations.txt: in no question

CAPITAL = (
    "What is the capital of {the}?",
    "Which city is the capital of {the}?",
    "Name the capital city of {the}.",
)
DEMONYM = ("What is the demonym of {the}?", "What is a person from {the} called?")
CURRENCY = (
    "What is the currency of {the}?",
    "Which currency is used in {the}?",
    "With what money do people in {the} pay?",
)
LANGUAGE = ("What is an official language of {the}?", "Which language is official in {the}?")
REGION = ("In which region of the world is {the}?", "In what world region does {the} lie?")
COUNTRY = ("{city} is the capital of which {word}?", "Which {word} has {city} as its capital?")
BY_CAPITAL = {
    "demonym": (
        "What is the demonym of the {word} whose capital is {city}?",
        "What is a person from the {word} with the capital {city} called?",
    ),
    "currency": (
        "What is the currency of the {word} whose capital is {city}?",
        "Which currency is used in the {word} with the capital {city}?",
    ),
    "language": (
        "What is an official language of the {word} whose capital is {city}?",
        "Which language is official in the {word} with the capital {city}?",
    ),
}
BY_DEMONYM = {
    "capital": ("What is the capital of the {word} whose demonym is {demonym}?",),
    "currency": ("What is the currency of the {word} whose demonym is {demonym}?",),
}
SYMBOL = (
    "What is the symbol of the element {name}?",
    "What is the chemical symbol of {name}?",
    "Which symbol stands for {name}?",
)
ELEMENT = ("Which element has the symbol {symbol}?", "For which element does the symbol {symbol} stand?")
DISCOVERER = (
    "Who discovered the element {name}?",
    "Who was the discoverer of {name}?",
    "Who is known as the discoverer of {name}?",
)
YEAR = ("In which year was {name} discovered?", "What is the discovery year of {name}?")
PLACE = ("In which country was {name} discovered?", "Which country is the place of discovery of {name}?")
AFTER = ("What is the element {name} named after?", "After what was {name} named?")
MEANING = (
    "What does the {language} word behind the name of {name} mean?",
    "What is the meaning of the word that the name {name} comes from?",
)
BY_SYMBOL = {
    "discoverer": ("Who discovered the element with the symbol {symbol}?",),
    "year": ("In which year was the element with the symbol {symbol} discovered?",),
    "place": ("In which country was the element with the symbol {symbol} discovered?",),
}
SYMBOL_BY_DISCOVERER = (
    "What is the symbol of the element discovered by {person}?",
    "Which symbol stands for the element that {person} discovered?",
)
BY_NAMESAKE = {
    "symbol": ("What is the symbol of the element named after {namesake}?",),
    "discoverer": ("Who discovered the element named after {namesake}?",),
    "year": ("In which year was the element named after {namesake} discovered?",),
}
BY_ELEMENT = {
    "capital": ("What is the capital of the country where {name} was discovered?",),
    "demonym": ("What is the demonym of the country where {name} was discovered?",),
    "currency": ("What is the currency of the country where {name} was discovered?",),
}
UNITED_KINGDOM = ("United Kingdom", "UK", "Great Britain", "Britain")
PLACE_NAMES = {
    "England": UNITED_KINGDOM,
    "Scotland": UNITED_KINGDOM,
    "United States": ("United States of America", "USA", "US", "America"),
}
STOP_WORDS = {"he", "in", "as", "at", "no", "be"}  # a word search drops these, and single letters


@dataclasses.dataclass(frozen=True)
class Candidate:
    question: str
    answers: tuple[str, ...]
    hops: int
    type: str  # the relation of the last hop
    topic: str
    subjects: frozenset[str]  # codes and symbols whose facts the question needs
    uid: str  # "{fact}-{number of the phrasing}"
    fact: str  # shared by the phrasings of one question

    def row(self) -> dict[str, Any]:
        metadata = {"hops": self.hops, "type": self.type, "topic": self.topic}
        return {
            "id": self.uid,
            "question": self.question,
            "golden_answers": list(self.answers),
            "metadata": metadata,
        }


def compare(text: str) -> str:
    """What remains of a name for telling whether two are the same."""
    return re.sub(r"\W", "", text.lower())


def joined(people: tuple[str, ...]) -> list[str]:
    """Right answers for discoverers: all of them, one of them, a surname."""
    both = [f"{people[0]} and {people[1]}"] if len(people) == 2 else []
    surnames = [re.sub(r"^\S+ ", "", p) if re.search(r" (de|von) ", p) else p.split()[-1] for p in people]
    return [*people, *both, *(s for s in surnames if s)]


def _ask(
    phrasings: Iterable[str],
    answers: Iterable[str],
    hops: int,
    type_: str,
    topic: str,
    via: str,
    subjects: set[str],
    **fields: str,
) -> Iterator[Candidate]:
    answers = unique(list(answers))
    if answers:
        fact = "-".join([topic, type_, *sorted(subjects), *([via] if via else [])])
        for number, phrasing in enumerate(phrasings):
            text = phrasing.format(**fields)
            yield Candidate(text, answers, hops, type_, topic, frozenset(subjects), f"{fact}-{number}", fact)


def country_candidates(countries: list[Country]) -> Iterator[Candidate]:
    cities = Counter(key for c in countries for key in {compare(n) for n in c.capital})
    people = Counter(key for c in countries for key in {compare(n) for n in c.demonyms})
    for c in countries:
        facts = country_facts(c)
        for type_, phrasings in (
            ("capital", CAPITAL),
            ("demonym", DEMONYM),
            ("currency", CURRENCY),
            ("language", LANGUAGE),
            ("region", REGION),
        ):
            yield from _ask(phrasings, facts[type_], 1, type_, "country", "", {c.code}, the=c.the)
        if not c.word:
            continue
        alone = all(cities[compare(n)] == 1 for n in c.capital)
        own = {compare(n) for n in c.names} & {compare(n) for n in c.capital}
        if c.capital and alone and not own:
            fields = {"word": c.word, "city": c.capital[0]}
            yield from _ask(COUNTRY, c.names, 1, "country", "country", "", {c.code}, **fields)
            for type_, phrasings in BY_CAPITAL.items():
                yield from _ask(
                    phrasings, facts[type_], 2, type_, "country", "by-capital", {c.code}, **fields
                )
        if c.demonyms and people[compare(c.demonyms[0])] == 1:
            fields = {"word": c.word, "demonym": c.demonyms[0]}
            for type_, phrasings in BY_DEMONYM.items():
                yield from _ask(
                    phrasings, facts[type_], 2, type_, "country", "by-demonym", {c.code}, **fields
                )


def country_facts(c: Country) -> dict[str, list[str]]:
    """Right answers by relation."""
    return {
        "capital": list(c.capital),
        "demonym": list(c.demonyms),
        "currency": [n for names in c.currencies for n in names],
        "language": [n for names in c.languages for n in names],
        "region": list(c.regions),
    }


def element_candidates(elements: list[Element], countries: list[Country]) -> Iterator[Candidate]:
    found = Counter(person for e in elements for person in e.discoverers)
    found.update(load_cleaning()["several_elements"])  # also found elements whose discovery is left out here
    namesakes = Counter(key for e in elements for key in {compare(n) for n in e.origin})
    home = {c.names[0]: c for c in countries}
    for e in elements:
        facts = {
            "symbol": [e.symbol],
            "discoverer": joined(e.discoverers),
            "year": [str(e.year)] if e.year else [],
            "place": [name for place in e.places for name in (place, *PLACE_NAMES.get(place, ()))],
        }
        one = {"hops": 1, "topic": "element", "via": "", "subjects": {e.symbol}, "name": e.name}
        yield from _ask(SYMBOL, facts["symbol"], type_="symbol", **one)
        yield from _ask(DISCOVERER, facts["discoverer"], type_="discoverer", **one)
        yield from _ask(YEAR, facts["year"], type_="year", **one)
        yield from _ask(PLACE, facts["place"], type_="place", **one)
        origin = AFTER if e.after else MEANING
        yield from _ask(origin, e.origin, type_="name_origin", language=e.language, **one)
        two = {"hops": 2, "topic": "element", "subjects": {e.symbol}}
        if len(e.symbol) > 1 and e.symbol.lower() not in STOP_WORDS:
            yield from _ask(ELEMENT, [e.name, *e.other_names], type_="element", symbol=e.symbol, **one)
            for type_, phrasings in BY_SYMBOL.items():
                yield from _ask(phrasings, facts[type_], type_=type_, via="by-symbol", symbol=e.symbol, **two)
        for number, person in enumerate(e.discoverers):
            if found[person] == 1:
                via = f"by-discoverer{number}"
                yield from _ask(
                    SYMBOL_BY_DISCOVERER, facts["symbol"], type_="symbol", via=via, person=person, **two
                )
        if e.after and all(namesakes[compare(n)] == 1 for n in e.origin):
            namesake = e.after.split(",")[0]
            for type_, phrasings in BY_NAMESAKE.items():
                yield from _ask(
                    phrasings, facts[type_], type_=type_, via="by-namesake", namesake=namesake, **two
                )
        if len(e.places) == 1 and e.places[0] in home:
            place = home[e.places[0]]
            there = {**two, "subjects": {e.symbol, place.code}, "name": e.name}
            for type_, phrasings in BY_ELEMENT.items():
                yield from _ask(
                    phrasings, country_facts(place)[type_], type_=type_, via="by-element", **there
                )


def part(subjects: Iterable[str]) -> dict[str, str]:
    """Which part each subject is in: "train", "eval" or "demonstrations"; fixed by its own name."""
    rest = sorted(
        set(subjects) - DEMONSTRATED, key=lambda s: hashlib.sha256(f"worldfacts {s}".encode()).digest()
    )
    held_out = set(rest[: round(EVAL_SHARE * len(rest))])
    return {s: "eval" if s in held_out else "train" for s in rest} | dict.fromkeys(
        DEMONSTRATED, "demonstrations"
    )


def split(countries: list[Country], elements: list[Element]) -> tuple[list[Candidate], list[Candidate]]:
    """(train, eval).  Evaluation asks each fact once, in a phrasing that its name chooses."""
    parts = part(c.code for c in countries) | part(e.symbol for e in elements)
    candidates = [*country_candidates(countries), *element_candidates(elements, countries)]
    texts = Counter(c.question for c in candidates)
    candidates = [
        c for c in candidates if texts[c.question] == 1
    ]  # the same question of two subjects is ambiguous
    where = {"train": [], "eval": [], "demonstrations": []}
    for c in candidates:
        own = {parts[s] for s in c.subjects}
        if len(own) == 1:
            where[own.pop()].append(c)
    by_fact: dict[str, list[Candidate]] = {}
    for c in where["eval"]:
        by_fact.setdefault(c.fact, []).append(c)
    chosen = [
        asked[hashlib.sha256(fact.encode()).digest()[0] % len(asked)] for fact, asked in by_fact.items()
    ]
    return where["train"], chosen
