"""What a tool is, and the runner that keeps its failures away from the run.  Host code.

ToolCalls come in, one ToolResult each comes out, whatever the tool does: it may raise, hang, flood
or return nonsense, and only the episode that called it sees a short observation of fixed wording,
"<tool> failed: <reason>".  Reasons never hold a traceback, a key or a host name.
"""

import collections
import dataclasses
import logging
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol, runtime_checkable

from jaxtool.protocol import render_error
from jaxtool.types import ToolCall, ToolResult, ToolStatus

log = logging.getLogger(__name__)


@runtime_checkable
class Tool(Protocol):
    """A callable with a name: the stripped input of a call -> (OK or EMPTY, text that the policy reads).

    It is called from many threads at once.  It says that it failed by raising ToolError.
    """

    name: str

    def __call__(self, query: str) -> tuple[ToolStatus, str]: ...


class ToolError(Exception):
    """A failure in words that the policy may read; `detail` is for the log alone."""

    def __init__(self, reason: str, detail: str = ""):
        super().__init__(reason)
        self.detail = detail


class ToolTimeout(ToolError):
    """The tool gave up because its time was over."""


def split_contents(contents: str) -> tuple[str, str]:
    """The (title, text) of a passage written `"title"\\ntext`, as in Search-R1's corpora.

    The title is the first line with its quotation marks, as `render_documents` takes it; a passage of
    one line has no title.
    """
    head, newline, text = contents.strip().partition("\n")
    return (head.strip(), text.strip()) if newline else ("", head)


@dataclasses.dataclass(eq=False)
class _Job:
    """One call on its way; whoever settles it first (worker, watchdog or close) decides the result."""

    call: ToolCall
    submitted: float  # time.monotonic() seconds
    future: Future = dataclasses.field(default_factory=Future)
    running: bool = False
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def start(self) -> bool:
        """Marks the job as running; False when it has been settled while it waited."""
        with self.lock:
            self.running = not self.future.done()
            return self.running

    def settle(self, status: ToolStatus, output: str) -> bool:
        """Sets the result unless there is one; True when this call did it."""
        with self.lock:
            if self.future.done():
                return False
            latency = time.monotonic() - self.submitted
            self.future.set_result(ToolResult(output=output, status=status, latency_s=latency))
            return True


class ToolRunner:
    """Runs tool calls on `threads` daemon threads; each has an answer within `timeout_s` of its submission.

    A thread whose call has passed its deadline is left to itself and replaced, so calls that hang take
    no place from others and do not keep the interpreter from ending.
    """

    def __init__(self, tools: Mapping[str, Tool], threads: int, timeout_s: float, max_chars: int = 20_000):
        """
        Args:
            tools: by the name that calls use.
            threads: calls that run at the same time.
            timeout_s: seconds from submission to result, waiting for a thread included.
            max_chars: longer outputs are cut there; a guard against floods, well above what the limit on
                observation tokens lets through.

        Raises:
            ValueError: threads, timeout_s or max_chars is not positive.
        """
        for name, value in (("threads", threads), ("timeout_s", timeout_s), ("max_chars", max_chars)):
            if not value > 0:
                raise ValueError(f"{name} of the tools is {value}; it must be positive")
        self._tools = dict(tools)
        self._threads = threads
        self._timeout_s = timeout_s
        self._max_chars = max_chars
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        # All calls have the same time, so the order of submission is the order of the deadlines.
        self._deadlines: collections.deque[_Job] = collections.deque()
        self._wake = threading.Condition()
        self._closed = False
        self._logged: set[tuple[str, str]] = set()
        for _ in range(threads):
            self._start(self._work)
        self._start(self._watch)

    def submit(self, call: ToolCall) -> Future[ToolResult]:
        """Starts a call; its future always gets a ToolResult and never an exception."""
        job = _Job(call, time.monotonic())
        job.future.set_running_or_notify_cancel()  # from here on it cannot be cancelled
        with self._wake:
            if self._closed:
                raise RuntimeError("a call was submitted to a closed tool runner")
            self._deadlines.append(job)
            self._jobs.put(job)
            self._wake.notify()
        return job.future

    def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Runs the calls together; results come in the order of the calls."""
        futures = [self.submit(call) for call in calls]
        return [future.result() for future in futures]

    def close(self) -> None:
        """Fails the calls that have no answer yet and ends the threads that can be ended."""
        with self._wake:
            if self._closed:
                return
            self._closed = True
            waiting = list(self._deadlines)
            self._wake.notify()
        for job in waiting:
            job.settle(ToolStatus.ERROR, render_error(job.call.tool, "the run is ending"))
        for _ in range(self._threads):
            self._jobs.put(None)

    def _start(self, target) -> None:
        threading.Thread(target=target, name="jaxtool-tool", daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.start() and not job.settle(*self._call(job.call)):
                return  # the deadline has passed meanwhile, and another thread has this one's place

    def _watch(self) -> None:
        """Settles calls at their deadlines, oldest first, and replaces the threads that they hold."""
        while True:
            with self._wake:
                while not self._closed and not self._deadlines:
                    self._wake.wait()
                if self._closed:
                    return
                job = self._deadlines[0]
                left = job.submitted + self._timeout_s - time.monotonic()
                if left > 0 and not job.future.done():
                    self._wake.wait(left)
                    continue
                self._deadlines.popleft()
            text = render_error(job.call.tool, f"no answer within {self._timeout_s:g} s")
            if job.settle(ToolStatus.TIMEOUT, text) and job.running:
                self._start(self._work)

    def _call(self, call: ToolCall) -> tuple[ToolStatus, str]:
        """Asks the tool; every failure becomes a status and a sentence."""
        tool = self._tools.get(call.tool)
        if tool is None:
            names = ", ".join(sorted(self._tools))
            return ToolStatus.ERROR, render_error(call.tool, f"there is no such tool, only {names}")
        try:
            status, output = tool(call.input)
            if not isinstance(status, ToolStatus) or not isinstance(output, str):
                raise ToolError(
                    "its answer cannot be read",
                    f"expected (ToolStatus, str), got ({type(status).__name__}, {type(output).__name__})",
                )
        except ToolError as error:
            self._log_once(call.tool, str(error), error.detail)
            status = ToolStatus.TIMEOUT if isinstance(error, ToolTimeout) else ToolStatus.ERROR
            return status, render_error(call.tool, str(error))
        # A tool is somebody else's code, and whatever it raises (SystemExit too) must end with its episode.
        # Its own message may name hosts or hold keys, so the policy reads the kind of error alone.
        except BaseException as error:
            reason = f"internal error ({type(error).__name__})"
            self._log_once(call.tool, reason, "", exc_info=True)
            return ToolStatus.ERROR, render_error(call.tool, reason)
        # Half a surrogate pair, which JSON can carry, can be neither tokenised nor written as UTF-8.
        return status, output[: self._max_chars].encode("utf-8", "replace").decode("utf-8")

    def _log_once(self, tool: str, reason: str, detail: str, exc_info: bool = False) -> None:
        if (tool, reason) not in self._logged:
            self._logged.add((tool, reason))
            log.warning(
                "tool %s failed: %s%s (said once; the metrics count it)",
                tool,
                reason,
                f" [{detail}]" if detail else "",
                exc_info=exc_info,
            )
