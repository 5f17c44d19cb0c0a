"""Progress on a terminal and elsewhere, and tables."""

import io
import re

import pytest

from jaxtool.progress import Progress, duration, table

METRICS = {
    "curriculum/shots": 3,
    "critic/rewards/mean": 0.5234,
    "reward/accuracy": 0.41,
    "reward/format": 0.96,
    "tool/valid_calls/mean": 1.0,
    "response_length/mean": 87.4,
    "perf/throughput": 312.0,
    "actor/lr": 1e-6,
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_without_a_terminal_each_step_is_one_clean_line():
    stream = io.StringIO()
    progress = Progress(52, stream=stream)
    progress.phase("rollout")
    progress.note("starting")
    progress.step(1, METRICS)
    progress.phase("update")
    progress.step(2, {"critic/rewards/mean": 0.25, "reward/format": None})
    progress.close()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "starting" and len(lines) == 3
    assert re.fullmatch(
        r"step  1/52  shots 3  reward 0\.523  accuracy 0\.41  format 0\.96  searches 1\.00  length 87  "
        r"tokens/s 312  elapsed 0:00  left \d:\d\d",
        lines[1],
    )
    assert re.fullmatch(r"step  2/52  reward 0\.250  elapsed 0:00  left \d:\d\d", lines[2])
    assert "\r" not in stream.getvalue() and "\x1b" not in stream.getvalue()


def test_time_left_counts_only_the_steps_of_this_run(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    progress = Progress(50, start=40, stream=stream)
    clock[0] += 60.0
    progress.step(42, {})
    assert stream.getvalue() == "step 42/50  elapsed 1:00  left 4:00\n"


def test_on_a_terminal_a_bar_shows_phase_metrics_and_time():
    stream = Terminal()
    progress = Progress(4, start=1, stream=stream)
    progress.phase("rollout")
    progress.step(2, METRICS)
    progress.note("a line of its own")
    progress.phase("update")
    progress.close()
    text = stream.getvalue()
    assert "rollout" in text and "update" in text and "2/4" in text and "1/4" in text
    assert re.search(r"\d\d:\d\d<", text)
    assert "shots 3  reward 0.523  accuracy 0.41  format 0.96  searches 1.00  length 87  tokens/s 312" in text
    assert "a line of its own\n" in text


def test_duration():
    assert [duration(s) for s in (0, 59.6, 61, 3600, 36000)] == [
        "0:00",
        "1:00",
        "1:01",
        "1:00:00",
        "10:00:00",
    ]


def test_table():
    text = table([("stage", "reward", "n"), ("3-shot", 0.5, 8), ("0-shot", None, 128)])
    assert text.splitlines() == [
        "stage   reward    n",
        "-------------------",
        "3-shot   0.500    8",
        "0-shot       -  128",
    ]
    assert table([("only", "head")]).splitlines()[0] == "only  head"
    with pytest.raises(ValueError, match="head of 2 columns"):
        table([("a", "b"), (1,)])
