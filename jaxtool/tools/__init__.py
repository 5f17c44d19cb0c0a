"""Tools that the policy may call, and the runner that calls them.  Host code."""

import os

from jaxtool.config import ToolsConfig
from jaxtool.files import find
from jaxtool.tools.base import ToolRunner
from jaxtool.tools.bm25 import Bm25, Corpus
from jaxtool.tools.retriever import Retriever
from jaxtool.tools.serper import Serper


def make(cfg: ToolsConfig, corpus_file: str | os.PathLike) -> ToolRunner:
    """The runner with the search tool that the configuration names.

    Args:
        cfg: training's or evaluation's tools.
        corpus_file: path of the corpus or name of package data; read by the bm25 engine alone.

    Raises:
        ValueError: unknown engine, bad corpus, missing key or package; one sentence each.
        FileNotFoundError: there is no such corpus file.
    """
    search = cfg.search
    engines = {
        "bm25": lambda: Bm25(Corpus.load(find(corpus_file, "corpus.file")), search.top_k),
        "retriever": lambda: Retriever(search.url, search.top_k, search.timeout_s),
        "serper": lambda: Serper(search.top_k, search.timeout_s),
    }
    if search.engine not in engines:
        raise ValueError(f"tools.search.engine is {search.engine!r}; expected one of {', '.join(engines)}")
    if search.top_k < 1:
        raise ValueError(f"tools.search.top_k is {search.top_k}; expected at least 1")
    return ToolRunner({"search": engines[search.engine]()}, cfg.threads, search.timeout_s)
