"""WorldFacts as shipped: schema, sizes, split, what search finds, demonstrations, and making it anew."""

import collections
import hashlib
import json
import pathlib
import re

import pytest

import jaxtool.data.worldfacts
from jaxtool import prompts
from jaxtool.rewards.exact_match import normalise
from jaxtool.tools.bm25 import Bm25, Corpus

FOLDER = pathlib.Path(jaxtool.data.worldfacts.__file__).parent
MADE = ("corpus.jsonl", "train.jsonl", "eval.jsonl", "demonstrations.txt")
DEMONSTRATED = {"Kenya", "Peru", "tungsten", "iodine"}


def rows(name):
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def corpus():
    """[(title without quotes, text)]"""
    return [tuple(re.fullmatch(r'"(.+)"\n(.+)', row["contents"]).groups()) for row in rows("corpus.jsonl")]


@pytest.fixture(scope="module")
def train():
    return rows("train.jsonl")


@pytest.fixture(scope="module")
def held_out():
    return rows("eval.jsonl")


def count(questions, **wanted):
    return sum(all(q["metadata"][key] == value for key, value in wanted.items()) for q in questions)


class Subjects:
    """Finds whose facts a question needs, from its text and the passages alone."""

    def __init__(self, corpus):
        self.countries, self.elements, self.place = {}, {}, {}
        demonyms = collections.defaultdict(set)
        for title, text in corpus:
            relation, _, subject = title.partition(" of ")
            subject = subject.removeprefix("the ")
            if relation in ("Capital", "Demonym", "Currency", "Region"):
                self.countries[subject] = subject
            if relation == "Demonym":
                demonyms[re.search(r"^The demonym of .+ is (.+?)\. A ", text)[1]].add(subject)
            if relation == "Symbol":
                self.elements[subject] = subject
                self.elements["symbol " + re.search(r" is (\w+)\.", text)[1]] = subject
            if relation == "Discovery place":
                self.place[subject] = re.search(r"was discovered in (.+?)\.", text)[1].removeprefix("the ")
            if relation == "Name" and (named := re.search(r"is named after (.+?)[,.] ", text)):
                self.elements["named after " + named[1]] = subject
        for title, text in corpus:
            if found := re.match(r"Capital of (?:the )?(.+)", title):
                city = re.search(r"^The capital of .+? is (.+)\. The city of ", text)[1]
                self.countries.setdefault(city, found[1])
            if found := re.search(r"took part in the discovery of (\w+)\. ", text):  # of one element only
                self.elements[title] = found[1]
        self.countries |= {f"demonym is {d}": next(iter(who)) for d, who in demonyms.items() if len(who) == 1}

    def __call__(self, question):
        names = self.countries if question["metadata"]["topic"] == "country" else self.elements
        text, found = question["question"], set()
        for name in sorted(names, key=len, reverse=True):  # "Papua New Guinea" before "Guinea"
            if name in text and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text):
                text = text.replace(name, "")
                found.add(names[name])
        if "the country where" in question["question"]:
            found |= {self.place[element] for element in found}
        return found


def test_sizes_are_as_promised(corpus, train, held_out):
    assert len(corpus) >= 1500
    assert len(train) + len(held_out) >= 4000
    assert len(held_out) >= 600
    assert count(held_out, hops=1, topic="country") >= 250
    assert count(train, hops=1, topic="country") >= 1200
    assert min(count(held_out, hops=2, topic=topic) for topic in ("country", "element")) >= 100
    assert sum((FOLDER / name).stat().st_size for name in MADE) < 1.6e6


def test_passages_are_short_and_hold_no_tag(corpus):
    titles = [title for title, _ in corpus]
    assert len(set(titles)) == len(titles)
    for title, text in corpus:
        assert 15 <= len(text.split()) <= 40, title
        assert not re.search(r"[<>\[\]{}]|None|  |,,|\.\.", title + text), title


def test_questions_have_the_schema_and_are_asked_once(train, held_out):
    for question in train + held_out:
        assert set(question) == {"id", "question", "golden_answers", "metadata"}
        assert set(question["metadata"]) == {"hops", "type", "topic"} and question["metadata"]["hops"] in (
            1,
            2,
        )
        gold = question["golden_answers"]
        assert gold and len(set(gold)) == len(gold)
        assert all(answer == answer.strip() and normalise(answer) and len(answer) <= 60 for answer in gold), (
            gold
        )
        assert "{" not in question["question"] and "  " not in question["question"]
    for key in ("id", "question"):
        assert len({q[key] for q in train + held_out}) == len(train + held_out)


def test_no_fact_of_an_evaluation_question_is_trained_on(corpus, train, held_out):
    subjects = Subjects(corpus)
    parts = []
    for questions in (train, held_out):
        found = [subjects(q) for q in questions]
        for q, who in zip(questions, found, strict=True):
            assert len(who) == 1 + ("the country where" in q["question"]), (q["question"], who)
        parts.append(set().union(*found))
    assert not parts[0] & parts[1]
    assert not DEMONSTRATED & (parts[0] | parts[1])
    assert len(parts[1]) >= 80


def test_one_search_with_the_question_finds_an_answer(train, held_out):
    search = Bm25(Corpus.load(FOLDER / "corpus.jsonl"), 2)
    one_hop = [q for q in train[::5] + held_out if q["metadata"]["hops"] == 1]
    hits = [_finds(search(q["question"])[1], q["golden_answers"]) for q in one_hop]
    assert sum(hits) >= 0.95 * len(one_hop)


def test_the_same_holds_for_the_defaults_of_bm25s(held_out):
    bm25s = pytest.importorskip("bm25s")
    contents = [row["contents"] for row in rows("corpus.jsonl")]
    index = bm25s.BM25()
    index.index(bm25s.tokenize(contents, show_progress=False), show_progress=False)
    one_hop = [q for q in held_out if q["metadata"]["hops"] == 1]
    queries = bm25s.tokenize([q["question"] for q in one_hop], show_progress=False)
    found, _ = index.retrieve(queries, k=2, show_progress=False)
    texts = [" ".join(contents[i] for i in documents) for documents in found]
    hits = [_finds(text, q["golden_answers"]) for q, text in zip(one_hop, texts, strict=True)]
    assert sum(hits) >= 0.95 * len(one_hop)


def _finds(text, answers):
    return any(f" {normalise(answer)} " in f" {normalise(text)} " for answer in answers)


def test_two_hop_questions_about_countries_take_two_searches(corpus, held_out):
    """The passage of the capital names the country and nothing that is asked for."""
    about = dict(corpus)
    asked = [q for q in held_out if "whose capital is" in q["question"]]
    assert len(asked) >= 50
    shortcuts = 0
    for q in asked:
        city = re.search(r"whose capital is (.+)\?", q["question"])[1]
        shortcuts += _finds(about[city].replace(city, ""), q["golden_answers"])
    assert shortcuts == 0


def test_demonstrations_show_what_the_search_tool_finds():
    text = (FOLDER / "demonstrations.txt").read_text(encoding="utf-8")
    blocks = prompts.load_demonstrations(FOLDER / "demonstrations.txt", 4)
    assert "\n\n".join(blocks) + "\n" == text
    search = Bm25(Corpus.load(FOLDER / "corpus.jsonl"), 2)
    turn = r"<think>[^<\n]+</think><search>([^<\n]+)</search>\n<information>([^<]+)</information>\n"
    for block, searches in zip(blocks, (1, 2, 1, 2), strict=True):
        problem = r"Example Problem: .+\nExample Solution: "
        end = r"<think>[^<\n]+</think><answer>[^<\n]+</answer>"
        assert re.fullmatch(f"{problem}(?:{turn}){{{searches}}}{end}", block)
        for query, shown in re.findall(turn, block):
            assert search(query)[1] == shown
        for thought in re.findall(r"<think>(.+?)</think>", block):
            assert 8 <= len(thought.split()) <= 20, thought
        *_, shown = re.findall(r"<information>([^<]+)</information>", block)
        assert re.search(r"<answer>(.+)</answer>", block)[1] in shown
    assert len("\n\n".join(blocks[:3])) <= 2600


def test_readme_has_the_hash_of_every_file():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"\| `(\S+)` \| \d+ \| ([0-9a-f]{64}) \|", readme))
    assert set(listed) == {*MADE, "cleaning.json"}
    for name, digest in listed.items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest, name


def test_made_anew_it_is_the_same(tmp_path):
    pytest.importorskip("countryinfo")
    pytest.importorskip("mendeleev")
    from jaxtool.data.worldfacts.make import make

    make(tmp_path)
    for name in MADE:
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes(), name
