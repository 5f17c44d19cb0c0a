"""BM25 search over a corpus in memory, by bm25s.  Host code.

A JSONL corpus comes in once; queries come in from many threads, and the best top_k passages go out as
rendered text.  The same query has the same answer always: scores descend, ties go by document order.
"""

import dataclasses
import logging
import os
import re
import unicodedata

import numpy as np

from jaxtool.files import read_jsonl
from jaxtool.protocol import NO_RESULTS, render_documents
from jaxtool.tools.base import split_contents
from jaxtool.types import ToolStatus

_WORD = re.compile(r"[^\W_]+")
_ACCENT = re.compile("[\u0300-\u036f]")  # of Latin, Greek and Cyrillic letters; marks of other scripts stay


@dataclasses.dataclass(frozen=True)
class Corpus:
    documents: tuple[tuple[str, str], ...]  # (title, text), in file order

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Corpus":
        """Reads JSONL (or .jsonl.gz) of {"id", "contents": "\\"title\\"\\ntext"}.

        Raises:
            ValueError: no documents, or a row without contents (its number is named).
        """
        documents = []
        for row, passage in read_jsonl(path, "corpus.file"):
            contents = passage.get("contents")
            if not isinstance(contents, str) or not contents.strip():
                raise ValueError(f"row {row} of {path} (corpus.file) has no text under 'contents'")
            documents.append(split_contents(contents))
        if not documents:
            raise ValueError(f"{path} (corpus.file) has no documents; expected one JSON object a line")
        return cls(tuple(documents))


def tokenize(text: str) -> list[str]:
    """Words of letters and digits, lower-cased, without accents ("Curaçao" is found by "curacao").

    Neither stemming nor stop words: single letters and short words are answers here (the symbol K, the
    element In), and BM25's idf makes frequent words light anyway.
    """
    text = _ACCENT.sub("", unicodedata.normalize("NFKD", text))
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


class Bm25:
    """Search tool over a Corpus.

    The Lucene variant of BM25 (k1 1.5, b 0.75) as in Lù 2024 (arXiv:2407.03618), in which a passage
    that shares no word with the query scores exactly 0; such passages are no hits.
    """

    name = "search"

    def __init__(self, corpus: Corpus, top_k: int):
        """Builds the index in memory.

        Raises:
            ValueError: top_k below 1, no word in the corpus, or bm25s is not installed.
        """
        if top_k < 1:
            raise ValueError(f"tools.search.top_k is {top_k}; expected at least 1")
        words = [tokenize(f"{title} {text}") for title, text in corpus.documents]
        if not any(words):
            raise ValueError(f"none of the corpus's {len(words)} documents (corpus.file) has a word in it")
        # Not at the top of the file: bm25s imports jax, and starts its backend, where jax is installed.
        # A host file must not do that, and on a pod it must not come before jax.distributed has started.
        try:
            import bm25s
        except ImportError:
            raise ValueError(
                "tools.search.engine is 'bm25', which needs bm25s: pip install -e '.[quickstart]'"
            ) from None
        logging.getLogger("bm25s").setLevel(logging.WARNING)  # it asks for debug messages by itself
        self._index = bm25s.BM25(k1=1.5, b=0.75, method="lucene", backend="numpy")
        self._index.index(words, show_progress=False)
        self._documents = corpus.documents
        self._top_k = top_k

    def __call__(self, query: str) -> tuple[ToolStatus, str]:
        hits = self.search(query)
        if not hits:
            return ToolStatus.EMPTY, NO_RESULTS
        return ToolStatus.OK, render_documents([self._documents[document] for document, _ in hits])

    def search(self, query: str) -> list[tuple[int, float]]:
        """The (document number, score) of at most top_k hits, best first, ties by document number."""
        ids = self._index.get_tokens_ids(tokenize(query))
        if not ids:  # releases of bm25s differ in what they make of a query without known words
            return []
        scores = self._index.get_scores_from_ids(ids)  # f32 [documents], fresh; the index is only read
        hits = np.flatnonzero(scores > 0)
        if hits.size > self._top_k:
            # bm25s's own selection breaks ties at the cut as it likes; here all stay until they are sorted.
            cut = np.partition(scores[hits], -self._top_k)[-self._top_k]
            hits = hits[scores[hits] >= cut]
        order = np.argsort(-scores[hits], kind="stable")[: self._top_k]
        return [(int(i), float(scores[i])) for i in hits[order]]
