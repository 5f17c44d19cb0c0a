"""Trains a model: reinforcement learning of tool use from a config file.

    python launch/train.py --config configs/icrl_quickstart.py
    python launch/train.py --config configs/icrl_7b.py --config.optim.learning_rate=2e-6 --run_dir runs/a

The same command again goes on from the last checkpoint of its run directory.
"""

import pathlib

from jaxtool import cli


def main() -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("--config", required=True, help="Python file with get_config()")
    parser.add_argument("--run_dir", help="where the run is kept (default: runs/<name of the config>)")
    parser.add_argument(
        "--dry_run",
        action="store_true",
        help="show prompts, shapes, memory and time of every stage, then stop",
    )
    args, overrides = parser.parse_known_args()
    run_dir = args.run_dir or pathlib.Path("runs") / pathlib.Path(args.config).stem

    with cli.one_sentence(args.debug):
        from jaxtool import config_loader

        cfg = config_loader.load(args.config, overrides)
        if args.dry_run:
            from jaxtool import dry_run

            print(dry_run.describe(cfg))
        else:
            from jaxtool import train

            train.run(cfg, run_dir)


if __name__ == "__main__":
    main()
