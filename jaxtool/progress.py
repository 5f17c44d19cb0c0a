"""What a run shows while it works, and plain text tables.  Host code.

Metrics of a step come in; on a terminal they feed a progress bar, elsewhere one clean line per step.
"""

import sys
import time
from collections.abc import Mapping, Sequence

from tqdm import tqdm

# metric -> (name shown, format)
_SHOWN = {
    "curriculum/shots": ("shots", "{:.0f}"),
    "critic/rewards/mean": ("reward", "{:.3f}"),
    "reward/accuracy": ("accuracy", "{:.2f}"),
    "reward/format": ("format", "{:.2f}"),
    "tool/valid_calls/mean": ("searches", "{:.2f}"),
    "response_length/mean": ("length", "{:.0f}"),
    "perf/throughput": ("tokens/s", "{:.0f}"),
}


class Progress:
    """Progress over the steps of a run.

    On a terminal: a bar with the phase at work, the last step's metrics and the time left.  Elsewhere
    (a file, a pipe): one line per step and note, without control characters.
    """

    def __init__(self, total: int, start: int = 0, stream=None):
        """
        Args:
            total: steps of the whole run.
            start: steps already done, when the run goes on from a checkpoint.
            stream: where to write; standard error by default.
        """
        self._stream = sys.stderr if stream is None else stream
        self._total = total
        self._start = start
        self._began = time.monotonic()
        self._phase = self._last = ""
        self._bar = None
        if self._stream.isatty():
            self._bar = tqdm(
                total=total,
                initial=start,
                file=self._stream,
                dynamic_ncols=True,
                bar_format="{n_fmt}/{total_fmt} |{bar:12}| {elapsed}<{remaining}  {desc}",
            )

    def phase(self, name: str) -> None:
        """Says what the step is doing now, such as "rollout"; shown by the bar alone."""
        self._phase = name
        if self._bar is not None:
            self._bar.set_description_str(f"{self._phase:<10}  {self._last}")

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Shows a finished step; metrics that are absent are left out."""
        present = {key: value for key, value in metrics.items() if value is not None}
        shown = [(n, f.format(present[key])) for key, (n, f) in _SHOWN.items() if key in present]
        if self._bar is not None:
            self._last = "  ".join(f"{name} {value}" for name, value in shown)
            self._bar.update(step - self._bar.n)
            self._bar.set_description_str(f"{self._phase:<10}  {self._last}")
            return
        elapsed = time.monotonic() - self._began
        left = elapsed / max(step - self._start, 1) * (self._total - step)
        width = len(str(self._total))
        parts = [f"step {step:{width}d}/{self._total}"] + [f"{name} {value}" for name, value in shown]
        parts += [f"elapsed {duration(elapsed)}", f"left {duration(left)}"]
        print("  ".join(parts), file=self._stream, flush=True)

    def note(self, text: str) -> None:
        """Writes a line of its own, above the bar where there is one."""
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        else:
            print(text, file=self._stream, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def duration(seconds: float) -> str:
    """Seconds as m:ss, or h:mm:ss from an hour on."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def table(rows: Sequence[Sequence]) -> str:
    """A plain text table; the first row is the head, and all rows have its length.

    Floats get three decimals, None is "-"; columns that hold numbers alone are set to the right.
    """
    head, *body = rows
    if any(len(row) != len(head) for row in body):
        raise ValueError(f"a row of the table has another length than its head of {len(head)} columns")
    columns = []
    for name, *values in zip(head, *body, strict=True):
        cells = [str(name)] + [_cell(value) for value in values]
        width = max(map(len, cells))
        numeric = bool(values) and all(value is None or isinstance(value, (int, float)) for value in values)
        columns.append([cell.rjust(width) if numeric else cell.ljust(width) for cell in cells])
    lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    rule = "-" * max(map(len, lines))
    return "\n".join([lines[0], rule, *lines[1:]])


def _cell(value) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
