"""The HTTP clients against a scripted server on this machine."""

import http.server
import json
import logging
import threading
import time

import pytest

from jaxtool.tools import http as jaxtool_http
from jaxtool.tools import serper
from jaxtool.tools.base import ToolError, ToolRunner, ToolTimeout
from jaxtool.tools.retriever import Retriever
from jaxtool.tools.serper import Serper
from jaxtool.types import ToolCall, ToolStatus

KEY = "sekret0123456789"
EMPTY = (ToolStatus.EMPTY, "No results.")


class Server:
    """Answers the n-th request with the n-th script (the last one again and again), and keeps requests.

    A script is (status, body bytes), "close", ("sleep", seconds), ("dribble", seconds), or a function of
    the request that returns one of these.
    """

    def __init__(self):
        self.scripts, self.requests, self.lock = [(200, b"{}")], [], threading.Lock()
        self.stop = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer.lock:
                    script = outer.scripts[min(len(outer.requests), len(outer.scripts) - 1)]
                    outer.requests.append((body, dict(self.headers), time.monotonic()))
                script = script(body) if callable(script) else script
                headers = {}
                if script == "close":
                    self.connection.close()
                    self.close_connection = True
                    return
                if script[0] == "sleep":
                    outer.stop.wait(script[1])
                    script = (200, b'{"result": [[]]}')
                if script[0] == "dribble":
                    self.send_response(200)
                    self.send_header("Content-Length", "1000000")
                    self.end_headers()
                    end = time.monotonic() + script[1]
                    while time.monotonic() < end and not outer.stop.is_set():
                        self.wfile.write(b" " * 600)
                        self.wfile.flush()
                        time.sleep(0.05)
                    self.close_connection = True
                    return
                if len(script) == 3:
                    headers = script[2]
                self.send_response(script[0])
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(script[1])))
                self.end_headers()
                self.wfile.write(script[1])

            def log_message(self, *args):
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *args):  # broken pipes of clients that gave up
                pass

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/retrieve"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.stop.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(jaxtool_http, "FIRST_WAIT_S", 0.01)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("SERPER_API_KEY", KEY)
    server = Server()
    yield server
    server.close()


def hits(*contents, score=True):
    return [{"document": {"id": "0", "contents": c}} | ({"score": 1.0} if score else {}) for c in contents]


def answer(*contents):
    return 200, json.dumps({"result": [hits(*contents)]}).encode()


def failure(call, query="q"):
    with pytest.raises(ToolError) as info:
        call(query)
    return str(info.value)


def test_retriever_asks_and_renders(server):
    server.scripts = [answer('"Peru"\nCapital Lima.', '"Chile"\nCapital\nSantiago.')]
    assert Retriever(server.url, 3, 5)("capital of Peru") == (
        ToolStatus.OK,
        'Doc 1(Title: "Peru") Capital Lima.\nDoc 2(Title: "Chile") Capital\nSantiago.',
    )
    assert server.requests[0][0] == {"queries": ["capital of Peru"], "topk": 3, "return_scores": True}


def test_retriever_keeps_top_k_and_takes_answers_without_scores(server):
    flood = {"result": [hits(*[f'"{i}"\ntext' for i in range(50)], score=False)]}
    bare = {"result": [[{"contents": '"a"\nb'}]]}
    server.scripts = [(200, json.dumps(flood).encode()), (200, json.dumps(bare).encode())]
    retriever = Retriever(server.url, 2, 5)
    assert retriever("q")[1] == 'Doc 1(Title: "0") text\nDoc 2(Title: "1") text'
    assert retriever("q")[1] == 'Doc 1(Title: "a") b'


def test_nothing_found_is_not_a_failure(server):
    server.scripts = [answer()]
    assert Retriever(server.url, 3, 5)("q") == EMPTY
    assert Retriever(server.url, 3, 5)("  ") == EMPTY
    assert len(server.requests) == 1  # a blank query is not sent


@pytest.mark.parametrize("first", ["close", (500, b"oops"), (503, b""), (429, b"slow down")])
def test_passing_faults_are_tried_again(server, first):
    server.scripts = [first, first, answer('"a"\nb')]
    assert Retriever(server.url, 3, 5)("q") == (ToolStatus.OK, 'Doc 1(Title: "a") b')
    assert len(server.requests) == 3


def test_tries_are_bounded(server):
    server.scripts = [(500, b"oops")]
    assert failure(Retriever(server.url, 3, 5)) == "HTTP status 500"
    assert len(server.requests) == jaxtool_http.MAX_TRIES


def test_waits_grow_and_retry_after_is_kept(server, monkeypatch):
    server.scripts = [(429, b"", {"Retry-After": "1"}), answer('"a"\nb')]
    Retriever(server.url, 3, 5)("q")
    assert server.requests[1][2] - server.requests[0][2] >= 1
    monkeypatch.setattr(jaxtool_http, "FIRST_WAIT_S", 0.2)
    server.requests.clear()
    server.scripts = [(500, b"")]
    failure(Retriever(server.url, 3, 10))
    times = [when for _, _, when in server.requests]
    gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
    assert gaps[0] >= 0.1 and gaps[1] >= 0.2 and gaps[2] >= 0.4


def test_a_wait_beyond_the_deadline_is_not_begun(server):
    server.scripts = [(429, b"", {"Retry-After": "3600"})]
    began = time.monotonic()
    assert failure(Retriever(server.url, 3, 1)) == "HTTP status 429"
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("script", [("sleep", 10), ("dribble", 10)])
def test_slow_servers_end_at_the_deadline(server, script):
    server.scripts = [script]
    began = time.monotonic()
    with pytest.raises(ToolTimeout, match="no answer within 0.4 s"):
        Retriever(server.url, 3, 0.4)("q")
    assert time.monotonic() - began < 1.5


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ((200, b"<html>hello</html>"), "the answer is not JSON"),
        ((200, b'{"result": [['), "the answer is not JSON"),
        ((200, b"\xff\xfe"), "the answer is not JSON"),
        ((200, b"[" * 100_000), "the answer is not JSON"),
        ((200, b""), "the answer is not JSON"),
        ((200, b"[]"), "the answer has an unknown shape"),
        ((200, b"{}"), "the answer has an unknown shape"),
        ((200, b'{"result": null}'), "the answer has an unknown shape"),
        ((200, b'{"result": []}'), "the answer has an unknown shape"),
        ((200, b'{"result": [[], []]}'), "the answer has an unknown shape"),
        ((200, b'{"result": ["ab"]}'), "the answer has an unknown shape"),
        ((200, b'{"result": [[5]]}'), "the answer has an unknown shape"),
        ((200, b'{"result": [[{"document": {"contents": 5}}]]}'), "the answer has an unknown shape"),
        ((200, b'{"result": [[{"document": {"contents": " "}}]]}'), "the answer has an unknown shape"),
        ((404, b"no such page"), "HTTP status 404"),
        ((302, b"", {"Location": "/elsewhere"}), "HTTP status 302"),
        ((200, b" " * (5 * 2**20)), "the answer is too long"),
    ],
)
def test_bad_answers_are_failures_and_are_not_tried_again(server, script, reason):
    server.scripts = [script]
    assert failure(Retriever(server.url, 3, 10)) == reason
    assert len(server.requests) == 1


def test_a_server_that_is_not_there(server):
    server.close()
    reason = failure(Retriever(server.url, 3, 5))
    assert reason == "the service cannot be reached"


def test_bad_url():
    with pytest.raises(ValueError, match=r"tools\.search\.url is 'localhost:8000'"):
        Retriever("localhost:8000", 3, 5)


def test_concurrent_calls_each_get_their_own_answer_or_their_own_error(server):
    def script(body):
        query = body["queries"][0]
        if query.endswith("3"):
            return 404, b""
        if query.endswith("7"):
            return "sleep", 10
        return answer(f'"{query}"\ntext')

    server.scripts = [script]
    runner = ToolRunner({"search": Retriever(server.url, 3, 1.0)}, threads=32, timeout_s=1.0)
    results = runner.run([ToolCall("search", f"q{i}") for i in range(60)])
    runner.close()
    for i, result in enumerate(results):
        expected = {3: "search failed: HTTP status 404", 7: "search failed: no answer within 1 s"}
        assert result.output == expected.get(i % 10, f'Doc 1(Title: "q{i}") text')


def test_serper_asks_and_renders(server):
    organic = [
        {
            "title": "Lima - Wikipedia",
            "link": "l",
            "snippet": "Lima is the\n capital of Peru.",
            "position": 1,
        },
        {"title": "no snippet"},
        {"title": "Peru", "snippet": "A country."},
        {"title": "more", "snippet": "cut by top k"},
    ]
    found = {"organic": organic, "answerBox": {"title": "Peru / Capital", "answer": "Lima"}}
    server.scripts = [(200, json.dumps(found).encode())]
    assert Serper(3, 5, server.url)("capital of Peru") == (
        ToolStatus.OK,
        'Doc 1(Title: "Peru / Capital") Lima\n'
        'Doc 2(Title: "Lima - Wikipedia") Lima is the capital of Peru.\n'
        'Doc 3(Title: "Peru") A country.',
    )
    body, headers, _ = server.requests[0]
    assert body == {"q": "capital of Peru", "num": 3}
    assert headers["X-API-KEY"] == KEY


@pytest.mark.parametrize(
    ("found", "documents"),
    [
        ({}, []),
        ({"organic": []}, []),
        ({"organic": None, "answerBox": [], "knowledgeGraph": "x"}, []),
        ({"organic": [None, 5, {"title": 5, "snippet": "a"}]}, [('""', "a")]),
        ({"answerBox": {"snippet": "s", "title": "t"}}, [('"t"', "s")]),
        (
            {
                "knowledgeGraph": {
                    "title": "Lima",
                    "type": "City",
                    "description": "d.",
                    "attributes": {"Area": "2 km", "n": 5},
                }
            },
            [('"Lima"', "City. d. Area: 2 km")],
        ),
        ({"message": "x", "organic": [{"title": "t", "snippet": "s"}]}, [('"t"', "s")]),
    ],
)
def test_serper_answers_with_parts_missing(found, documents):
    assert serper.read_answer(found) == documents


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ((403, b'{"message":"Unauthorized.","statusCode":403}'), "HTTP status 403"),
        ((400, b'{"message":"Not enough credits"}'), "HTTP status 400"),
        ((200, b'{"message":"Unauthorized."}'), "the service reports an error"),
        ((200, b"[]"), "the answer has an unknown shape"),
        ((200, b"<html>"), "the answer is not JSON"),
        ((429, b"quota"), "HTTP status 429"),
        ((302, b"", {"Location": "http://127.0.0.1:1/"}), "HTTP status 302"),
    ],
)
def test_serper_failures(server, script, reason):
    server.scripts = [script]
    assert failure(Serper(3, 5, server.url)) == reason


def test_the_key_is_in_no_message(server, caplog):
    caplog.set_level(logging.DEBUG)
    server.scripts = [(403, f"key {KEY} is not valid".encode()), "close", (500, KEY.encode())]
    tool = Serper(3, 2, server.url)
    runner = ToolRunner({"search": tool}, 1, 5.0)
    results = runner.run([ToolCall("search", "a"), ToolCall("search", "b")])
    runner.close()
    assert [r.output for r in results] == ["search failed: HTTP status 403", "search failed: HTTP status 500"]
    assert "key *** is not valid" in caplog.text
    assert KEY not in caplog.text + repr(tool) + str(results)


@pytest.mark.parametrize(
    ("key", "fault"), [(None, "is not set"), (" ", "is not set"), ("a b\u00e9", "holds no key")]
)
def test_serper_needs_its_key(monkeypatch, key, fault):
    monkeypatch.delenv("SERPER_API_KEY", raising=False)
    if key is not None:
        monkeypatch.setenv("SERPER_API_KEY", key)
    with pytest.raises(
        ValueError, match=rf"tools\.search\.engine is 'serper'.*SERPER_API_KEY {fault}"
    ) as info:
        Serper(3, 5)
    assert key is None or key == " " or key not in str(info.value)
