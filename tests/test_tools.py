"""The runner: every call gets its own result in time, whatever the tool does."""

import subprocess
import sys
import threading
import time

import pytest

from jaxtool.config import SearchConfig, ToolsConfig
from jaxtool.tools import make
from jaxtool.tools.base import Tool, ToolError, ToolRunner, ToolTimeout, split_contents
from jaxtool.tools.bm25 import Bm25, Corpus
from jaxtool.tools.retriever import Retriever
from jaxtool.tools.serper import Serper
from jaxtool.types import ToolCall, ToolStatus

OK, EMPTY, ERROR, TIMEOUT = ToolStatus.OK, ToolStatus.EMPTY, ToolStatus.ERROR, ToolStatus.TIMEOUT


class Scripted:
    """Does what its input says."""

    name = "search"

    def __init__(self):
        self.release = threading.Event()  # hanging calls end when it is set

    def __call__(self, query: str):
        if query == "hang":
            self.release.wait(20)
        if query == "raise":
            raise RuntimeError("secret-key at host.internal")
        if query == "exit":
            raise SystemExit(3)
        if query == "error":
            raise ToolError("HTTP status 500", "for the log")
        if query == "tired":
            raise ToolTimeout("no answer within 1 s")
        if query == "flood":
            return OK, "x" * 1_000_000
        if query == "nothing":
            return EMPTY, "No results."
        if query == "none":
            return None
        if query == "numbers":
            return OK, 5
        if query == "surrogate":
            return OK, "a\ud800b"
        return OK, f"about {query}"


@pytest.fixture
def tool():
    tool = Scripted()
    yield tool
    tool.release.set()


def run(tool, queries, **options):
    runner = ToolRunner({"search": tool}, **({"threads": 4, "timeout_s": 5.0} | options))
    try:
        return runner.run([ToolCall("search", query) for query in queries])
    finally:
        runner.close()


def test_each_call_has_its_own_result_in_order(tool):
    results = run(tool, [f"q{i}" for i in range(200)])
    assert [r.output for r in results] == [f"about q{i}" for i in range(200)]
    assert all(r.status is OK and 0 <= r.latency_s < 5 for r in results)


@pytest.mark.parametrize(
    ("query", "status", "output"),
    [
        ("error", ERROR, "search failed: HTTP status 500"),
        ("tired", TIMEOUT, "search failed: no answer within 1 s"),
        ("raise", ERROR, "search failed: internal error (RuntimeError)"),
        ("exit", ERROR, "search failed: internal error (SystemExit)"),
        ("none", ERROR, "search failed: internal error (TypeError)"),
        ("numbers", ERROR, "search failed: its answer cannot be read"),
        ("nothing", EMPTY, "No results."),
        ("surrogate", OK, "a?b"),
    ],
)
def test_failures_are_short_observations_of_one_call(tool, query, status, output):
    before, failed, after = run(tool, ["a", query, "b"])
    assert (failed.status, failed.output) == (status, output)
    assert (before.output, after.output) == ("about a", "about b")


def test_unknown_tool_is_an_error_that_names_the_known_ones(tool):
    runner = ToolRunner({"search": tool}, 1, 5.0)
    result = runner.submit(ToolCall("python", "1+1")).result()
    runner.close()
    assert (result.status, result.output) == (ERROR, "python failed: there is no such tool, only search")


def test_floods_are_cut(tool):
    (result,) = run(tool, ["flood"], max_chars=50)
    assert result.output == "x" * 50


def test_hanging_calls_time_out_and_take_no_place_from_others(tool):
    """Three times as many calls hang as there are threads, and they come first."""
    began = time.monotonic()
    runner = ToolRunner({"search": tool}, threads=2, timeout_s=0.4)
    hanging = [runner.submit(ToolCall("search", "hang")) for _ in range(2)]
    assert [f.result().status for f in hanging] == [TIMEOUT] * 2
    assert hanging[0].result().output == "search failed: no answer within 0.4 s"
    # Both threads still hang; these run on their replacements.
    hanging = [runner.submit(ToolCall("search", "hang")) for _ in range(2)]
    [f.result() for f in hanging]
    assert [r.output for r in runner.run([ToolCall("search", q) for q in "abc"])] == [
        f"about {q}" for q in "abc"
    ]
    assert time.monotonic() - began < 3
    runner.close()


def test_deadline_counts_from_submission_even_in_the_queue(tool):
    runner = ToolRunner({"search": tool}, threads=1, timeout_s=0.3)
    began = time.monotonic()
    results = runner.run([ToolCall("search", "hang"), ToolCall("search", "late")])
    assert time.monotonic() - began < 0.7
    assert results[0].status is TIMEOUT
    # The second waited for the only thread: it is run by the replacement or has timed out, nothing else.
    assert results[1].status in (TIMEOUT, OK)
    runner.close()


def test_late_answers_change_nothing_and_threads_do_not_pile_up(tool):
    others = set(threading.enumerate())
    runner = ToolRunner({"search": tool}, threads=2, timeout_s=0.2)
    futures = [runner.submit(ToolCall("search", "hang")) for _ in range(2)]
    results = [future.result() for future in futures]
    tool.release.set()  # now the two old threads come back with an answer
    time.sleep(0.2)
    assert [future.result() for future in futures] == results
    assert runner.run([ToolCall("search", "a")])[0].output == "about a"
    runner.close()
    time.sleep(0.2)
    assert set(threading.enumerate()) <= others


def test_mixed_faults_leave_the_other_calls_as_they_are(tool):
    queries = [f"q{i}" for i in range(300)]
    clean = [(r.status, r.output) for r in run(tool, queries)]
    faulty = dict(zip(range(7, 300, 20), ["error", "hang", "flood"] * 5, strict=True))
    dirty = run(tool, [faulty.get(i, q) for i, q in enumerate(queries)], threads=8, timeout_s=1.0)
    assert [(r.status, r.output) for i, r in enumerate(dirty) if i not in faulty] == [
        c for i, c in enumerate(clean) if i not in faulty
    ]
    counts = {s: sum(r.status is s for r in dirty) for s in ToolStatus}
    assert counts == {OK: 290, EMPTY: 0, ERROR: 5, TIMEOUT: 5}


def test_close_fails_what_is_open(tool):
    runner = ToolRunner({"search": tool}, threads=1, timeout_s=30)
    future = runner.submit(ToolCall("search", "hang"))
    runner.close()
    runner.close()
    assert future.result(1).output == "search failed: the run is ending"
    with pytest.raises(RuntimeError, match="closed"):
        runner.submit(ToolCall("search", "a"))


def test_a_hanging_call_does_not_keep_the_interpreter(tmp_path):
    script = (
        "import time\n"
        "from jaxtool.tools.base import ToolRunner\n"
        "from jaxtool.types import ToolCall\n"
        "runner = ToolRunner({'search': lambda query: time.sleep(60)}, 1, 60.0)\n"
        "runner.submit(ToolCall('search', 'a'))\n"
    )
    subprocess.run([sys.executable, "-c", script], timeout=30, check=True)


def test_log_says_each_failure_once_and_the_policy_reads_no_message(tool, caplog):
    results = run(tool, ["raise"] * 5 + ["error"] * 5, threads=1)
    assert "secret" not in "".join(r.output for r in results)
    assert "host" not in "".join(r.output for r in results)
    assert [r.getMessage() for r in caplog.records] == [
        "tool search failed: internal error (RuntimeError) (said once; the metrics count it)",
        "tool search failed: HTTP status 500 [for the log] (said once; the metrics count it)",
    ]


@pytest.mark.parametrize("option", [{"threads": 0}, {"timeout_s": 0.0}, {"max_chars": 0}])
def test_limits_must_be_positive(tool, option):
    (name,) = option
    with pytest.raises(ValueError, match=f"{name} of the tools is 0"):
        ToolRunner({"search": tool}, **({"threads": 1, "timeout_s": 1.0} | option))


def test_split_contents():
    assert split_contents('"Paris"\nCapital of France.\nOn the Seine.') == (
        '"Paris"',
        "Capital of France.\nOn the Seine.",
    )
    assert split_contents("one line") == ("", "one line")


def test_make_searches_the_corpus_of_the_configuration(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "0", "contents": "\\"Peru\\"\\nIts capital is Lima."}\n', encoding="utf-8")
    runner = make(ToolsConfig(), corpus)
    try:
        found, nothing = runner.run([ToolCall("search", "capital of Peru"), ToolCall("search", "xyz")])
    finally:
        runner.close()
    assert (found.status, found.output) == (OK, 'Doc 1(Title: "Peru") Its capital is Lima.')
    assert (nothing.status, nothing.output) == (EMPTY, "No results.")


def test_make_errors_are_sentences(tmp_path, monkeypatch):
    monkeypatch.delenv("SERPER_API_KEY", raising=False)
    with pytest.raises(ValueError, match="SERPER_API_KEY is not set"):
        make(ToolsConfig(search=SearchConfig(engine="serper")), "unused")
    with pytest.raises(ValueError, match="'google'; expected one of bm25, retriever, serper"):
        make(ToolsConfig(search=SearchConfig(engine="google")), "unused")
    with pytest.raises(ValueError, match="tools.search.top_k is 0"):
        make(ToolsConfig(search=SearchConfig(engine="retriever", top_k=0)), "unused")
    with pytest.raises(FileNotFoundError, match="corpus.file"):
        make(ToolsConfig(), tmp_path / "none.jsonl")


def test_engines_are_tools(monkeypatch):
    monkeypatch.setenv("SERPER_API_KEY", "k")
    engines = [Bm25(Corpus((("t", "word"),)), 1), Retriever("http://127.0.0.1:1", 1, 1.0), Serper(1, 1.0)]
    assert all(isinstance(engine, Tool) and engine.name == "search" for engine in engines)


def test_importing_the_tools_imports_no_jax():
    """bm25s imports jax, and starts its backend, where jax is installed."""
    script = "import sys, jaxtool.tools; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0
