"""Live web search through Serper (https://serper.dev).  Host code.

A query goes out with the key in a header; answer box, organic results and knowledge graph come back as
(title, text) documents, at most top_k.  The key is read from the environment and is in no message.
"""

import os
from typing import Any

from jaxtool.protocol import NO_RESULTS, render_documents
from jaxtool.tools.base import ToolError
from jaxtool.tools.http import post_json
from jaxtool.types import ToolStatus

URL = "https://google.serper.dev/search"
KEY_VARIABLE = "SERPER_API_KEY"
SECTIONS = ("answerBox", "organic", "knowledgeGraph")


class Serper:
    """Search tool over Google's results."""

    name = "search"

    def __init__(self, top_k: int, timeout_s: float, url: str = URL):
        """
        Raises:
            ValueError: the environment has no usable key.
        """
        key = os.environ.get(KEY_VARIABLE, "").strip()
        # A key that no header can carry would turn up in the error of the HTTP library.
        if not key or not all("!" <= character <= "~" for character in key):
            fault = "holds no key (printable ASCII)" if key else "is not set"
            raise ValueError(
                f"tools.search.engine is 'serper', which needs an API key of serper.dev, but the environment "
                f"variable {KEY_VARIABLE} {fault}"
            )
        self._headers = {"X-API-KEY": key}
        self._top_k = top_k
        self._timeout_s = timeout_s
        self._url = url

    def __call__(self, query: str) -> tuple[ToolStatus, str]:
        if not query.strip():
            return ToolStatus.EMPTY, NO_RESULTS
        body = {"q": query, "num": self._top_k}
        documents = read_answer(post_json(self._url, body, self._timeout_s, self._headers))[: self._top_k]
        if not documents:
            return ToolStatus.EMPTY, NO_RESULTS
        return ToolStatus.OK, render_documents(documents)


def read_answer(answer: Any) -> list[tuple[str, str]]:
    """The (title, text) documents of an answer: answer box, organic results, knowledge graph.

    Every section may be absent; a section or field of another type than Serper documents counts as
    absent, because Google's boxes vary.  The answer box comes first, as in the ICRL authors' default
    server (SerpAPI; their Serper server keeps organic results alone).

    Raises:
        ToolError: the answer is no object, or reports an error in place of results.
    """
    if not isinstance(answer, dict):
        raise ToolError("the answer has an unknown shape", "expected a JSON object")
    if "message" in answer and not any(section in answer for section in SECTIONS):
        raise ToolError("the service reports an error")
    organic = answer.get("organic")
    documents = [_answer_box(answer.get("answerBox"))]
    documents += [_organic(hit) for hit in organic] if isinstance(organic, list) else []
    documents += [_knowledge_graph(answer.get("knowledgeGraph"))]
    return [document for document in documents if document[1]]


def _answer_box(box: Any) -> tuple[str, str]:
    parts = [_field(box, "answer"), _field(box, "snippet")]
    return _title(box), " ".join(part for part in parts if part)


def _organic(hit: Any) -> tuple[str, str]:
    return _title(hit), _field(hit, "snippet")


def _knowledge_graph(graph: Any) -> tuple[str, str]:
    parts = [_field(graph, "type"), _field(graph, "description")]
    attributes = graph.get("attributes") if isinstance(graph, dict) else None
    if isinstance(attributes, dict):
        parts += [f"{name}: {_field(attributes, name)}" for name in attributes if _field(attributes, name)]
    return _title(graph), ". ".join(part.rstrip(".") for part in parts if part)


def _title(section: Any) -> str:
    """The title in quotation marks, as corpora have it."""
    return f'"{_field(section, "title")}"'


def _field(section: Any, name: str) -> str:
    """The text of a field on one line; "" when it is absent or not a text."""
    value = section.get(name) if isinstance(section, dict) else None
    return " ".join(value.split()) if isinstance(value, str) else ""
