"""Names in the configuration -> files, and JSONL files -> rows.  Host code.

A name is a path (absolute, or relative to the working directory) or names package data, such as
"worldfacts/train.jsonl" in `jaxtool/data/`; the path goes first.
"""

import gzip
import json
import pathlib
import zlib
from collections.abc import Iterator
from typing import Any

DATA = pathlib.Path(__file__).parent / "data"


def find(name: str, key: str) -> pathlib.Path:
    """The file that `name` stands for.

    Args:
        name: path, or name of package data.
        key: configuration key that gave the name, for the error.

    Raises:
        FileNotFoundError: neither exists as a file.
    """
    path = pathlib.Path(name).expanduser()
    for candidate in (path, DATA / name):
        if candidate.is_file():
            return candidate
    what = "is a folder, not a file" if path.is_dir() else "is no file here and no package data of jaxtool"
    raise FileNotFoundError(f"{key} is {name!r}, which {what}; expected a path or a name below {DATA}")


def read_jsonl(path: str | pathlib.Path, key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row number from 1, object) of every line of a .jsonl or .jsonl.gz file; blank lines are skipped.

    Raises:
        ValueError: a row is not UTF-8, not JSON, or not an object; or the gzip stream is broken.
    """
    path = pathlib.Path(path)
    number = 0
    open_file = gzip.open if path.suffix == ".gz" else open
    try:
        with open_file(path, "rb") as file:  # bytes, so that a bad row can be told from a bad file
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, _row(line, number, path, key)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} ({key}) is no whole gzip file: it breaks after row {number}") from error


def _row(line: bytes, number: int, path: pathlib.Path, key: str) -> dict[str, Any]:
    where = f"row {number} of {path} ({key})"
    try:
        row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        if b"\\u" in line:  # an escaped lone surrogate is legal JSON that no tokenizer can encode
            json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeError as error:
        raise ValueError(f"{where} is not valid UTF-8 text: {error.reason}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(row, dict):
        raise ValueError(f"{where} is a {type(row).__name__}; expected an object with named fields")
    return row
