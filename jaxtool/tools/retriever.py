"""Search through a server that speaks Search-R1's `/retrieve` protocol.  Host code.

The request is  {"queries": ["..."], "topk": 3, "return_scores": true}
and the answer  {"result": [[{"document": {"contents": "\\"title\\"\\ntext"}, "score": 12.3}, ...], ...]}
"""

from typing import Any

from jaxtool.protocol import NO_RESULTS, render_documents
from jaxtool.tools.base import ToolError, split_contents
from jaxtool.tools.http import post_json
from jaxtool.types import ToolStatus


class Retriever:
    """Search tool over a `/retrieve` server; at most `top_k` documents, in the server's order."""

    name = "search"

    def __init__(self, url: str, top_k: int, timeout_s: float):
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"tools.search.url is {url!r}; expected the http(s) address of a server")
        self._url = url
        self._top_k = top_k
        self._timeout_s = timeout_s

    def __call__(self, query: str) -> tuple[ToolStatus, str]:
        if not query.strip():
            return ToolStatus.EMPTY, NO_RESULTS
        # return_scores stays true: Search-R1's own server breaks on false.
        body = {"queries": [query], "topk": self._top_k, "return_scores": True}
        documents = read_answer(post_json(self._url, body, self._timeout_s))[: self._top_k]
        if not documents:
            return ToolStatus.EMPTY, NO_RESULTS
        return ToolStatus.OK, render_documents(documents)


def read_answer(answer: Any) -> list[tuple[str, str]]:
    """The (title, text) documents of an answer to one query.

    Raises:
        ToolError: the answer has another shape, or answers another number of queries than one.
    """
    result = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(result, list) or not all(isinstance(hits, list) for hits in result):
        raise ToolError("the answer has an unknown shape", "expected {'result': [[...]]}")
    if len(result) != 1:
        raise ToolError("the answer has an unknown shape", f"answers for {len(result)} queries instead of 1")
    return [split_contents(_contents(hit)) for hit in result[0]]


def _contents(hit: Any) -> str:
    # Servers that leave the score out send either the same shape without it or the bare document.
    document = hit.get("document", hit) if isinstance(hit, dict) else None
    contents = document.get("contents") if isinstance(document, dict) else None
    if not isinstance(contents, str) or not contents.strip():
        raise ToolError("the answer has an unknown shape", "a document without contents")
    return contents
