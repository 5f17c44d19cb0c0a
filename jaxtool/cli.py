"""What the launch scripts share.  Host code."""

import argparse
import contextlib
import sys
from collections.abc import Iterator


def parser(doc: str) -> argparse.ArgumentParser:
    """A parser that shows a script's docstring as it stands; `--config.a.b=value` is left to the loader."""
    made = argparse.ArgumentParser(
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="any setting of the config: --config.a.b=value",
        allow_abbrev=False,
    )
    made.add_argument("--debug", action="store_true", help="show where an error came from")
    return made


@contextlib.contextmanager
def one_sentence(debug: bool) -> Iterator[None]:
    """Ends the program with the sentence of an error that the user can mend, or with all of it."""
    try:
        yield
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        if debug:
            raise
        sys.exit(f"error: {error}")
