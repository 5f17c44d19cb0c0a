"""Trains a model: reinforcement learning of tool use from a config file.

    python launch/train.py --config configs/icrl_quickstart.py
    python launch/train.py --config configs/icrl_7b.py --config.optim.learning_rate=2e-6 --run_dir runs/a

The same command again goes on from the last checkpoint of its run directory.
"""

import argparse
import pathlib
import sys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="Python file with get_config()")
    parser.add_argument("--run_dir", help="where the run is kept (default: runs/<name of the config>)")
    parser.add_argument(
        "--dry_run", action="store_true",
        help="show prompts, shapes, memory and time of every stage, then stop",
    )  # fmt: skip
    args, overrides = parser.parse_known_args()
    run_dir = pathlib.Path(args.run_dir or pathlib.Path("runs") / pathlib.Path(args.config).stem)

    from jaxtool import config_loader

    try:
        cfg = config_loader.load(args.config, overrides)
        if args.dry_run:
            from jaxtool import dry_run

            print(dry_run.describe(cfg))
            return
        from jaxtool import train

        train.run(cfg, run_dir)
    except (ValueError, OSError, RuntimeError) as error:
        if "JAXTOOL_TRACEBACK" in __import__("os").environ:
            raise
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
