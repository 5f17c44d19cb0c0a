"""launch/train.py for a tiny random model, which writes no tags: a text's hash says what it asks for.

    python tests/stubbed_train.py CONFIG RUN_DIR [KILL_AT]

KILL_AT names a moment at which the process kills itself, such as `trajectories:3` (after that file of
step 3), `row:2` (after the metrics row of step 2) or `save:4` (after that checkpoint).
"""

import hashlib
import os
import signal
import sys


def parse(text):
    """A search in two of three texts, so that episodes have tools, turns and unequal rewards."""
    from jaxtool import protocol

    number = hashlib.sha256(text.encode("utf-8", "replace")).digest()[0]
    return protocol.Search(f"number {number % 12}") if number % 3 else protocol.NoAction()


def kill_after(owner, name, wanted, step_of):
    """Makes `owner.name` kill the process after the call for which `step_of(*args)` is `wanted`."""
    original = getattr(owner, name)

    def replaced(*args, **kwargs):
        result = original(*args, **kwargs)
        if step_of(*args) == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, replaced)


def main(config, run_dir, kill_at=""):
    from jaxtool import checkpoint, config_loader, metrics, protocol, train, trajectories

    protocol.parse = parse
    if kill_at:
        moment, step = kill_at.split(":")
        owner, name, step_of = {
            "trajectories": (trajectories, "write", lambda run_dir, step, *rest: step),
            "row": (metrics.MetricsLog, "write", lambda log, step, *rest: step),
            "save": (checkpoint, "save", lambda run_dir, step, *rest: step),
        }[moment]
        kill_after(owner, name, int(step), step_of)
    train.run(config_loader.load(config), run_dir)


if __name__ == "__main__":
    main(*sys.argv[1:])
