"""Draws the training curves of one or several runs, with stage boundaries and validation.

Example:
    python launch/plot.py runs/icrl runs/control --out curves.png
"""

import argparse
import json
import pathlib
import sys

import numpy as np

from jaxtool.metrics import read_metrics

# (title, metric of training, last part of val/<set>/..., unit); the curves of the ICRL paper's Figure 3
PANELS = (
    ("Reward", "critic/rewards/mean", None, "mean of a step"),
    ("Exact match", "reward/accuracy", "em", "fraction"),
    ("Format", "reward/format", "format", "fraction"),
    ("Response length", "response_length/mean", None, "tokens"),
    ("Valid searches", "tool/valid_calls/mean", "searches", "per episode"),
)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#666666")  # Okabe & Ito
MARKERS = "oDs^vPX"


def smooth(
    steps: np.ndarray, values: np.ndarray, window: int, stages: list[tuple[int, int, int]]
) -> np.ndarray:
    """Centred moving average over the points at most window // 2 steps away and in the same stage.

    A switch of stages stays as sharp as it is; NaN points are left out.
    """
    firsts = [first for first, _, _ in stages]
    stage = np.searchsorted(firsts, steps, side="right")
    out = np.full(len(values), np.nan)
    for i in range(len(values)):
        near = values[(np.abs(steps - steps[i]) <= window // 2) & (stage == stage[i]) & np.isfinite(values)]
        if near.size:
            out[i] = near.mean()
    return out


def series(rows: list[dict], name: str) -> tuple[np.ndarray, np.ndarray]:
    """(steps, values) of the rows that have the metric; null is NaN."""
    found = [(row["step"], np.nan if row[name] is None else row[name]) for row in rows if name in row]
    steps, values = zip(*found, strict=True) if found else ((), ())
    return np.array(steps, float), np.array(values, float)


def read_stages(run: pathlib.Path) -> list[tuple[int, int, int]]:
    """The curriculum of a run: (first step, last step, demonstrations) of each stage.

    Raises:
        ValueError: config.json is absent or holds no curriculum.stages.
    """
    path = run / "config.json"
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        stages = saved.get("config", saved)["curriculum"]["stages"]
        ends = np.cumsum([steps for _, steps in stages])
        return [
            (int(end) - steps + 1, int(end), shots) for end, (shots, steps) in zip(ends, stages, strict=True)
        ]
    except FileNotFoundError:
        raise ValueError(f"{run} is no run directory: it has no config.json") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} does not hold the configuration of a run with curriculum.stages") from None


def read_run(run: pathlib.Path) -> tuple[list[dict], list[tuple[int, int, int]]]:
    rows = read_metrics(run / "metrics.jsonl")
    if not rows:
        raise ValueError(f"{run} has no metrics.jsonl with at least one step")
    return rows, read_stages(run)


def draw(runs: list[pathlib.Path], out: pathlib.Path, window: int) -> None:
    """Writes the figure; the file's ending says the format."""
    try:
        import matplotlib
    except ImportError:
        raise ValueError("launch/plot.py needs matplotlib: pip install -e '.[quickstart]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    data = [read_run(run) for run in runs]
    style = {
        "font.size": 10,
        "axes.titlesize": 12,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#888888",
        "axes.labelcolor": "#444444",
        "xtick.color": "#444444",
        "ytick.color": "#444444",
        "grid.color": "#e6e6e6",
    }
    with plt.rc_context(style):
        figure, axes = plt.subplots(2, 3, figsize=(13.5, 7.2))
        figure.subplots_adjust(left=0.055, right=0.985, top=0.95, bottom=0.075, wspace=0.2, hspace=0.3)
        for axis, panel in zip(axes.flat, PANELS, strict=False):
            draw_panel(axis, panel, data, window)
        for axis in axes.flat[: len(PANELS)]:
            draw_stages(axis, [stages for _, stages in data])
        draw_legend(axes.flat[-1], runs, data, window)
        plt.setp(axes[1, :2], xlabel="step")
        axes[0, 2].set_xlabel("step")
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=150)
        plt.close(figure)


def draw_panel(axis, panel, data, window: int) -> None:
    title, name, validation, unit = panel
    top = 0.0
    for i, (rows, stages) in enumerate(data):
        colour = COLOURS[i % len(COLOURS)]
        steps, values = series(rows, name)
        axis.plot(steps, values, color=colour, alpha=0.25, linewidth=1)
        axis.plot(steps, smooth(steps, values, window, stages), color=colour, linewidth=2)
        top = max(top, np.nanmax(values, initial=0.0))
        for j, held_out in enumerate(validation_sets(rows)):
            steps, values = series(rows, f"val/{held_out}/{validation}")
            axis.plot(
                steps,
                values,
                MARKERS[j % len(MARKERS)],
                color=colour,
                markeredgecolor="white",
                markersize=8,
                zorder=3,
                clip_on=False,
            )
            top = max(top, np.nanmax(values, initial=0.0))
    axis.set_title(title)
    axis.set_ylabel(unit)
    lines_of_names = len({tuple(stages) for _, stages in data})
    axis.set_ylim(0, (top or 1) * (1.08 + 0.08 * lines_of_names))  # room for them above the curves
    axis.set_xlim(0, max(stages[-1][1] for _, stages in data) + 0.5)
    axis.grid(axis="y")
    axis.set_axisbelow(True)


def draw_stages(axis, curricula: list[list[tuple[int, int, int]]]) -> None:
    """Boundaries as dashed lines and "k-shot" above each stage, grey if all runs agree, else as the run."""
    distinct = list(dict.fromkeys(map(tuple, curricula)))
    for line, stages in enumerate(distinct):
        colour = "#777777" if len(distinct) == 1 else COLOURS[curricula.index(list(stages)) % len(COLOURS)]
        for first, last, shots in stages:
            if first > 1:
                axis.axvline(first - 0.5, color=colour, linestyle=(0, (4, 3)), linewidth=1, zorder=1)
            axis.text(
                (first + last) / 2,
                0.99 - 0.065 * line,
                f"{shots}-shot",
                transform=axis.get_xaxis_transform(),
                ha="center",
                va="top",
                fontsize=9,
                color=colour,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )


def validation_sets(rows: list[dict]) -> list[str]:
    names = {name.split("/")[1] for row in rows for name in row if name.startswith("val/")}
    return sorted(names)


def draw_legend(axis, runs: list[pathlib.Path], data, window: int) -> None:
    from matplotlib.lines import Line2D

    axis.axis("off")
    entries = [
        Line2D([], [], color=COLOURS[i % len(COLOURS)], linewidth=3, label=run_name(runs, run))
        for i, run in enumerate(runs)
    ]
    entries.append(Line2D([], [], color="#888888", linewidth=2, label=f"moving average of {window} steps"))
    entries.append(Line2D([], [], color="#888888", alpha=0.35, linewidth=1, label="each step"))
    held_out = sorted({name for rows, _ in data for name in validation_sets(rows)})
    for j, name in enumerate(held_out):
        mark = {"marker": MARKERS[j % len(MARKERS)], "markersize": 8, "markeredgecolor": "white"}
        entries.append(Line2D([], [], color="#888888", linestyle="", label=f"validation on {name}", **mark))
    axis.legend(handles=entries, loc="center left", frameon=False, fontsize=11, labelspacing=0.8)


def run_name(runs: list[pathlib.Path], run: pathlib.Path) -> str:
    """The folder's name, or the path as given where two runs share a name."""
    names = [other.resolve().name for other in runs]
    return run.resolve().name if names.count(run.resolve().name) == 1 else str(run)


def main(argv: list[str] | None = None) -> None:
    description, _, example = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=description, epilog=example, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=pathlib.Path, metavar="RUN", help="run directories")
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        metavar="FILE",
        help="picture to write (default: curves.png in the first RUN)",
    )
    parser.add_argument(
        "--window", type=int, default=5, help="steps in the moving average (default: %(default)s)"
    )
    args = parser.parse_args(argv)
    out = args.out or args.runs[0] / "curves.png"
    try:
        if args.window < 1:
            raise ValueError(f"--window is {args.window}; expected at least 1")
        draw(args.runs, out, args.window)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(out)


if __name__ == "__main__":
    main()
