"""files.py: names -> files -> rows."""

import gzip
import json

import pytest

from jaxtool import files


def rows(path):
    return list(files.read_jsonl(path, "config.corpus.file"))


def test_a_path_goes_before_package_data(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "DATA", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    inside = tmp_path / "data" / "facts" / "a.jsonl"
    inside.parent.mkdir(parents=True)
    inside.write_text("{}")
    assert files.find("facts/a.jsonl", "key") == inside
    assert files.find(str(inside), "key") == inside
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / "a.jsonl").write_text("{}")
    assert files.find("facts/a.jsonl", "key").resolve() == tmp_path / "facts" / "a.jsonl"


def test_missing_file_names_the_key(tmp_path):
    with pytest.raises(FileNotFoundError, match="config.corpus.file is 'no/such.jsonl', which is no file"):
        files.find("no/such.jsonl", "config.corpus.file")
    with pytest.raises(FileNotFoundError, match="which is a folder, not a file"):
        files.find(str(tmp_path), "config.corpus.file")


def test_rows_keep_their_numbers_and_blank_lines_are_skipped(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\n{"a": "\xc3\xa9\xe2\x80\xa8"}')
    assert rows(path) == [(1, {"a": 1}), (3, {"a": "é\u2028"})]


def test_gzip_gives_the_same_rows(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(json.dumps({"a": i}).encode() + b"\n" for i in range(9))))
    assert rows(path) == [(i + 1, {"a": i}) for i in range(9)]


@pytest.mark.parametrize(
    "line, sentence",
    [
        (b'{"a": 1', "row 2 of .* is not valid JSON"),
        (b"[1]", "row 2 of .* is a list; expected an object"),
        (b'{"a": "\xff"}', "row 2 of .* is not valid UTF-8"),
        (b'{"a": "\\ud800"}', "row 2 of .* is not valid UTF-8"),
        (b"[" * 100_000, "row 2 of .* is not valid JSON"),
    ],
)
def test_a_bad_row_is_named(tmp_path, line, sentence):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 0}\n' + line + b"\n")
    with pytest.raises(ValueError, match=sentence) as error:
        rows(path)
    assert "config.corpus.file" in str(error.value)


@pytest.mark.parametrize("damage", ["cut", "not gzip"])
def test_a_broken_gzip_file_is_named(tmp_path, damage):
    data = gzip.compress(b'{"a": 0}\n' * 999)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(data[: len(data) // 2] if damage == "cut" else b'{"a": 0}\n')
    with pytest.raises(ValueError, match="is no whole gzip file"):
        rows(path)
