"""BM25 search against a plain Python oracle of the formula."""

import gzip
import json
import math
import threading
import time

import pytest

from jaxtool.tools.bm25 import Bm25, Corpus, tokenize
from jaxtool.types import ToolStatus

TEXTS = [
    ('"Peru"', "The capital of Peru is Lima. Peru borders Chile."),
    ('"Chile"', "The capital of Chile is Santiago."),
    ('"Potassium"', "Potassium has the symbol K. It was found by Davy."),
    ('"Curaçao"', "An island with the capital Willemstad."),
    ('"Sodium"', "Sodium has the symbol Na. It was found by Davy."),
]


def oracle(documents, query):
    """Eq. of Robertson with Lucene's idf, written as loops: scores of all documents."""
    words = [tokenize(f"{title} {text}") for title, text in documents]
    average = sum(map(len, words)) / len(words)
    scores = []
    for document in words:
        score = 0.0
        for term in tokenize(query):
            containing = sum(term in other for other in words)
            frequency = document.count(term)
            idf = math.log(1 + (len(words) - containing + 0.5) / (containing + 0.5))
            score += idf * frequency / (frequency + 1.5 * (1 - 0.75 + 0.75 * len(document) / average))
        scores.append(score)
    return scores


def corpus(texts=TEXTS):
    return Corpus(tuple(texts))


@pytest.mark.parametrize("query", ["capital of Peru", "symbol K", "Davy", "the the capital", "chile, CHILE?"])
def test_scores_equal_the_formula(query):
    expected = oracle(TEXTS, query)
    hits = Bm25(corpus(), top_k=5).search(query)
    assert {i for i, _ in hits} == {i for i, score in enumerate(expected) if score > 0}
    assert [score for _, score in hits] == pytest.approx(
        sorted((s for s in expected if s > 0), reverse=True), rel=1e-5
    )
    assert all(score == pytest.approx(expected[i], rel=1e-5) for i, score in hits)


def test_finds_and_renders_the_best_first():
    status, text = Bm25(corpus(), top_k=2)("What is the capital of Chile?")
    assert status is ToolStatus.OK
    assert text == (
        'Doc 1(Title: "Chile") The capital of Chile is Santiago.\n'
        'Doc 2(Title: "Peru") The capital of Peru is Lima. Peru borders Chile.'
    )


@pytest.mark.parametrize("query", ["zzz", "", "  ", "?!", "…", "_"])
def test_nothing_found_says_so(query):
    assert Bm25(corpus(), top_k=3)(query) == (ToolStatus.EMPTY, "No results.")


def test_documents_that_share_no_word_are_no_hits():
    assert [i for i, _ in Bm25(corpus(), top_k=5).search("Willemstad")] == [3]


def test_single_letters_and_accents():
    bm25 = Bm25(corpus(), top_k=1)
    assert bm25.search("K")[0][0] == 2
    assert bm25.search("curacao")[0][0] == bm25.search("CURAÇAO")[0][0] == 3
    assert tokenize("Côte d'Ivoire's ＡＢＣ_x ガ") == ["cote", "d", "ivoire", "s", "abc", "x", "ガ"]


@pytest.mark.parametrize("top_k", [1, 3, 7, 50])
def test_ties_go_by_document_order(top_k):
    texts = [("t", "common word")] * 20 + [("t", "common common")] + [("t", "common word")] * 20
    hits = Bm25(corpus(texts), top_k).search("common")
    assert [i for i, _ in hits] == ([20] + list(range(20)) + list(range(21, 41)))[:top_k]


def test_top_k_larger_than_the_corpus():
    assert {i for i, _ in Bm25(corpus(), top_k=100).search("capital")} == {0, 1, 3}


def test_many_threads_get_the_same_answers():
    bm25 = Bm25(corpus(), top_k=3)
    queries = ["capital of Peru", "symbol K", "Davy", "zzz", "island"] * 20
    expected = [bm25(q) for q in queries]
    answers = [[] for _ in range(8)]
    threads = [threading.Thread(target=lambda a=a: a.extend(bm25(q) for q in queries)) for a in answers]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert all(a == expected for a in answers)


def test_a_query_takes_about_a_tenth_of_a_millisecond():
    texts = [
        (f'"t{i}"', f"the capital of country{i} is city{i} and it has {i % 7} rivers") for i in range(1600)
    ]
    bm25 = Bm25(corpus(texts), top_k=3)
    times = []
    for i in range(50):
        began = time.perf_counter()
        bm25(f"what is the capital of country{i}")
        times.append(time.perf_counter() - began)
    assert sorted(times)[5] < 1e-3  # a low quantile: other processes may share the cores


def write(path, rows):
    open_file = gzip.open if path.suffix == ".gz" else open
    with open_file(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_load(tmp_path, name):
    path = write(
        tmp_path / name, [{"id": "0", "contents": '"Peru"\nA country.'}, {"id": "1", "contents": "bare"}]
    )
    assert Corpus.load(path).documents == (('"Peru"', "A country."), ("", "bare"))


@pytest.mark.parametrize("row", [{"id": "1"}, {"id": "1", "contents": " \n"}, {"id": "1", "contents": ["a"]}])
def test_a_row_without_contents_is_named(tmp_path, row):
    path = write(tmp_path / "c.jsonl", [{"id": "0", "contents": "a\nb"}, row])
    with pytest.raises(ValueError, match=r"row 2 of .*c\.jsonl \(corpus\.file\)"):
        Corpus.load(path)


def test_corpora_without_documents_or_words(tmp_path):
    with pytest.raises(ValueError, match=r"empty\.jsonl \(corpus\.file\) has no documents"):
        Corpus.load(write(tmp_path / "empty.jsonl", []))
    with pytest.raises(ValueError, match="none of the corpus's 2 documents"):
        Bm25(corpus([("", "..."), ("", "!?")]), 3)
    with pytest.raises(ValueError, match="top_k is 0"):
        Bm25(corpus(), 0)


def test_documents_without_words_stay_silent():
    bm25 = Bm25(corpus([("", "..."), ("", "the lake"), ("", "--")]), 3)
    assert [i for i, _ in bm25.search("lake")] == [1]


def test_missing_bm25s_is_a_sentence(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "bm25s", None)
    with pytest.raises(ValueError, match=r"needs bm25s: pip install -e '.\[quickstart\]'"):
        Bm25(corpus(), 3)
