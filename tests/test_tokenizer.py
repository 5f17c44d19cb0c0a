import json
import subprocess
import sys

import pytest
import tiny
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, processors

from jaxtool import tokenizer

TEXTS = [
    "<think>who?</think>\n<search>the capital of Peru</search>",
    '<information>Doc 1(Title: "Lima")\nLima is\r\n</information>\n\n',
    "日本🙂é\u0301 \xa0\x00\x7f\xad tab\t  two spaces ",
    "<|im_end|><|im_start|>user\n<|endoftext|>",
    "",
]


@pytest.fixture
def folder(tmp_path):
    return tiny.make_hf_folder(tmp_path)


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_and_every_token_has_its_bytes(folder, text):
    loaded = tokenizer.load(folder)
    ids = loaded.encode(text)
    assert all(type(i) is int for i in ids)
    assert loaded.decode(ids) == text
    pieces = loaded.token_bytes()
    assert len(pieces) == loaded.vocab_size == 256 + len(tiny.MERGES) + 3
    assert b"".join(pieces[i] for i in ids) == text.encode()
    assert not set(ids) & set(loaded.special_tokens.values())  # a look-alike in plain text stays text


def test_token_bytes_of_special_and_merged_tokens(folder):
    loaded = tokenizer.load(folder)
    pieces = loaded.token_bytes()
    assert [pieces[loaded.special_tokens[token]] for token in tiny.SPECIAL] == [
        t.encode() for t in tiny.SPECIAL
    ]
    assert {bytes([byte]) for byte in range(256)} <= set(pieces)
    assert pieces[loaded.encode(">\n")[0]] == b">\n"
    assert pieces[loaded.encode(" of")[0]] == b" of"


def test_chat_ids_are_a_plain_list_through_the_template(folder):
    loaded = tokenizer.load(folder)
    start, end = loaded.special_tokens["<|im_start|>"], loaded.special_tokens["<|im_end|>"]
    ids = loaded.chat_ids([{"role": "user", "content": "hi"}])
    expected = [
        start,
        *loaded.encode("user\nhi"),
        end,
        *loaded.encode("\n"),
        start,
        *loaded.encode("assistant\n"),
    ]
    assert type(ids) is list and ids == expected
    assert loaded.decode(ids) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def add_bos(folder):
    """A tokenizer that puts a BOS first, as Llama 3's, with a template that writes one too."""
    raw = RawTokenizer.from_file(str(folder / "tokenizer.json"))
    bos = raw.token_to_id("<|endoftext|>")
    raw.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", bos)]
    )
    raw.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config |= {"bos_token": "<|endoftext|>", "chat_template": "{{ bos_token }}" + config["chat_template"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return bos


def test_exactly_one_bos(folder):
    plain = tokenizer.load(folder)
    assert plain.prompt_ids("hi") == plain.encode("hi")  # adds none by itself
    bos = add_bos(folder)
    loaded = tokenizer.load(folder)
    assert loaded.encode("hi") == plain.encode("hi")
    assert loaded.prompt_ids("hi") == [bos, *plain.encode("hi")]
    assert loaded.chat_ids([{"role": "user", "content": "hi"}]).count(bos) == 1
    assert loaded.prompt_ids("<|endoftext|>").count(bos) == 1


def test_eos_ids_are_the_union_of_all_three_files(folder):
    endoftext, start, end = (256 + len(tiny.MERGES) + i for i in range(3))
    assert tokenizer.load(folder).eos_ids == {endoftext, end}
    for name, value in (("config.json", start), ("generation_config.json", None)):
        content = json.loads((folder / name).read_text()) | {"eos_token_id": value}
        (folder / name).write_text(json.dumps(content))
    assert tokenizer.load(folder).eos_ids == {start, end}  # the tokenizer's own is <|im_end|>


def test_a_tokenizer_without_eos_is_refused(folder):
    (folder / "generation_config.json").unlink()
    for name, key in (("config.json", "eos_token_id"), ("tokenizer_config.json", "eos_token")):
        content = json.loads((folder / name).read_text())
        del content[key]
        (folder / name).write_text(json.dumps(content))
    with pytest.raises(ValueError, match="no end-of-sequence token"):
        tokenizer.load(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_what_is_missing_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"holds no {name}, which the tokenizer needs"):
        tokenizer.load(folder)


def test_other_kinds_of_tokenizers_are_refused(folder):
    raw = RawTokenizer(models.BPE(vocab={"▁": 0, "a": 1}, merges=[]))
    raw.decoder = decoders.Metaspace()
    raw.save(str(folder / "tokenizer.json"))
    with pytest.raises(ValueError, match="BPE with decoder Metaspace; only byte-level BPE"):
        tokenizer.load(folder)
    raw = RawTokenizer(models.WordLevel(vocab={"a": 0}, unk_token="a"))
    raw.save(str(folder / "tokenizer.json"))
    with pytest.raises(ValueError, match="WordLevel with decoder None"):
        tokenizer.load(folder)


def test_no_template_is_said_where_one_is_needed(folder):
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    loaded = tokenizer.load(folder)
    with pytest.raises(ValueError, match="has no chat template; .* prompt.chat_template"):
        loaded.chat_ids([{"role": "user", "content": "hi"}])


def test_neither_torch_nor_jax_is_imported(folder):
    code = (
        "import sys; from jaxtool import tokenizer; t = tokenizer.load(sys.argv[1]); "
        "t.chat_ids([{'role': 'user', 'content': 'hi'}]); print(sorted({'torch', 'jax'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
