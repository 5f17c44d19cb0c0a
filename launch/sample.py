"""Plays one episode on a question and shows it turn by turn.

python launch/sample.py "What is the capital of Norway?" --checkpoint runs/icrl_quickstart
python launch/sample.py "What is the currency of Chad?" --config.eval.shots=3
"""

from jaxtool import cli


def main() -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("question")
    parser.add_argument(
        "--config",
        default="configs/icrl_quickstart.py",
        help="Python file with get_config() (default: configs/icrl_quickstart.py)",
    )
    parser.add_argument("--checkpoint", help="RUN_DIR, RUN_DIR:STEP or a Hugging Face folder")
    args, overrides = parser.parse_known_args()

    with cli.one_sentence(args.debug):
        from jaxtool import config_loader

        cfg = config_loader.load(args.config, overrides)
        from jaxtool import sample

        sample.run(cfg, args.question, args.checkpoint)


if __name__ == "__main__":
    main()
