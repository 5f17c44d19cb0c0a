"""launch/plot.py: from run directories to a picture."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

SCRIPT = pathlib.Path(__file__).parents[1] / "launch" / "plot.py"
spec = importlib.util.spec_from_file_location("launch_plot", SCRIPT)
plot = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plot)

STAGES = [[3, 4], [2, 3], [0, 5]]


def make_run(folder, stages=STAGES, rows=None):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"curriculum": {"stages": stages}}))
    if rows is None:
        rows = [{"step": 0, "val/eval/em": 0.0, "val/eval/searches": 0.0}]
        for step in range(1, 13):
            rows.append(
                {
                    "step": step,
                    "critic/rewards/mean": step / 12,
                    "reward/accuracy": None if step == 5 else step / 20,
                    "reward/format": 0.9,
                    "response_length/mean": 100 + step,
                    "tool/valid_calls/mean": 1.0,
                }
            )
        rows[-1] |= {"val/eval/em": 0.4, "val/eval/searches": 0.8}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_draws_one_and_several_runs(tmp_path):
    pytest.importorskip("matplotlib")
    first = make_run(tmp_path / "icrl")
    second = make_run(tmp_path / "control", [[0, 12]])
    plot.main([str(first), "--window", "3"])
    assert (first / "curves.png").read_bytes().startswith(b"\x89PNG")
    out = tmp_path / "new" / "both.png"
    plot.main([str(first), str(second), "--out", str(out)])
    assert out.read_bytes() != (first / "curves.png").read_bytes()


def test_panels_hold_the_curves_the_boundaries_and_the_validation(tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot as plt

    rows, stages = plot.read_run(make_run(tmp_path / "a"))
    figure, axis = plt.subplots()
    plot.draw_panel(axis, plot.PANELS[1], [(rows, stages)], 3)
    plot.draw_stages(axis, [stages])
    raw, smoothed, validation, *boundaries = axis.get_lines()
    expected = np.arange(1, 13) / 20
    expected[4] = np.nan  # null in the file
    np.testing.assert_allclose(raw.get_ydata(), expected)
    assert np.isfinite(smoothed.get_ydata()).all()
    assert (list(validation.get_xdata()), list(validation.get_ydata())) == ([0, 12], [0.0, 0.4])
    assert [line.get_xdata()[0] for line in boundaries] == [4.5, 7.5]
    assert [(t.get_text(), t.get_position()[0]) for t in axis.texts] == [
        ("3-shot", 2.5),
        ("2-shot", 6.0),
        ("0-shot", 10.0),
    ]
    plt.close(figure)


def test_moving_average_stays_within_its_stage():
    steps = np.arange(1.0, 9.0)
    values = np.array([0, 0, 3, 3, 10, 10, np.nan, 16])
    smoothed = plot.smooth(steps, values, 3, [(1, 4, 3), (5, 8, 0)])
    np.testing.assert_allclose(smoothed, [0, 1, 2, 3, 10, 10, 13, 16])


def test_runs_with_equal_names_are_told_apart():
    runs = [pathlib.Path("x/a"), pathlib.Path("y/a"), pathlib.Path("y/b")]
    assert [plot.run_name(runs, run) for run in runs] == ["x/a", "y/a", "b"]


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda run: (run / "metrics.jsonl").unlink(), "has no metrics.jsonl with at least one step"),
        (lambda run: (run / "config.json").unlink(), "is no run directory: it has no config.json"),
        (lambda run: (run / "config.json").write_text("{}"), "does not hold the configuration"),
        (lambda run: (run / "metrics.jsonl").write_text("x\n"), "line 1 of"),
    ],
)
def test_bad_run_directories_are_one_sentence(tmp_path, spoil, sentence):
    pytest.importorskip("matplotlib")
    run = make_run(tmp_path / "a")
    spoil(run)
    with pytest.raises(SystemExit, match=sentence):
        plot.main([str(run)])


def test_missing_matplotlib_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit, match=r"needs matplotlib: pip install -e '.\[quickstart\]'"):
        plot.main([str(make_run(tmp_path / "a"))])


def test_help_is_quick_and_has_an_example():
    began = time.monotonic()
    done = subprocess.run([sys.executable, SCRIPT, "--help"], capture_output=True, text=True, check=True)
    assert time.monotonic() - began < 5  # two seconds on a quiet machine
    assert "python launch/plot.py runs/icrl" in done.stdout and "default: 5" in done.stdout
    code = (
        "import runpy, sys\n"
        "sys.argv = ['plot.py', '--help']\n"
        "try:\n"
        f"    runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
        "finally:\n"
        "    print([name for name in ('matplotlib', 'jax', 'transformers') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
