"""Evaluates a checkpoint or a Hugging Face folder on held-out questions.

    python launch/eval.py --config configs/icrl_quickstart.py --checkpoint runs/icrl_quickstart
    python launch/eval.py --config configs/icrl_quickstart.py --config.eval.shots=3 --config.eval.limit=20 --json

Without --checkpoint the model of the config is evaluated as it is.
"""

import json

from jaxtool import cli


def main() -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("--config", required=True, help="Python file with get_config()")
    parser.add_argument("--checkpoint", help="RUN_DIR, RUN_DIR:STEP or a Hugging Face folder")
    parser.add_argument("--out", help="folder for the predictions, one file a set")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args, overrides = parser.parse_known_args()

    with cli.one_sentence(args.debug):
        from jaxtool import config_loader

        cfg = config_loader.load(args.config, overrides)
        from jaxtool import evaluate

        result = evaluate.run(cfg, args.checkpoint, args.out)
    print(result.text)
    if args.json:
        print(json.dumps(result.data))


if __name__ == "__main__":
    main()
