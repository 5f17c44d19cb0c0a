"""Config file + overrides -> one validated Config, and back to plain data.  Host code.

`load` runs the user's own config file, applies all `--config.a.b=value` overrides at once, checks
every value against the type its dataclass declares, and then calls `config.validate`.
"""

import ast
import dataclasses
import difflib
import math
import pathlib
import re
import runpy
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from jaxtool import config as config_lib
from jaxtool.config import Config, ConfigError

# A section that may be None takes over another one when an override reaches inside it.
INHERITS = {"eval.tools": "tools"}


def load(path: str | pathlib.Path, overrides: Sequence[str] = ()) -> Config:
    """The effective configuration of a run.

    Args:
        path: Python file with `get_config() -> Config`.
        overrides: `--config.a.b=value` strings, in any order.

    Raises:
        ConfigError: the file has no usable `get_config`, a key is unknown (the nearest valid name is
            given), a value has the wrong type, or `config.validate` refuses the whole.
        FileNotFoundError: there is no such file.
    """
    return override(_run_config_file(pathlib.Path(path)), overrides)


def override(cfg: Config, overrides: Sequence[str]) -> Config:
    """`cfg` with `--config.a.b=value` overrides applied all at once, then checked."""
    texts = _split(overrides)
    inherited = [key for key in INHERITS if any(given.startswith(key + ".") for given in texts)]
    for key in inherited:
        if key in texts:
            raise ConfigError(f"config.{key} is given both as a whole and by parts; give one of them")
    later = {k: v for k, v in texts.items() if any(k.startswith(key + ".") for key in inherited)}
    cfg = _replace(cfg, {k: v for k, v in texts.items() if k not in later}, "")
    for key in inherited:
        if config_lib.value_at(cfg, key) is None:
            cfg = _set(cfg, key, config_lib.value_at(cfg, INHERITS[key]))
    cfg = _coerce(_replace(cfg, later, ""), Config, "config")
    config_lib.validate(cfg)
    return cfg


def to_dict(cfg: Any) -> Any:
    """Plain data for JSON: dicts, lists and scalars."""
    if dataclasses.is_dataclass(cfg):
        return {f.name: to_dict(getattr(cfg, f.name)) for f in dataclasses.fields(cfg)}
    if isinstance(cfg, tuple):
        return [to_dict(item) for item in cfg]
    return cfg


def from_dict(data: dict[str, Any]) -> Config:
    """Inverse of `to_dict`; keys that are absent take their defaults.

    Raises:
        ConfigError: unknown key, wrong type, or refused by `config.validate`.
    """
    cfg = _coerce(data, Config, "config")
    config_lib.validate(cfg)
    return cfg


def flatten(cfg: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of every leaf, in order of declaration."""
    for field in dataclasses.fields(cfg):
        value = getattr(cfg, field.name)
        if dataclasses.is_dataclass(value):
            yield from flatten(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value


def describe(cfg: Config) -> str:
    """One `a.b = value` line per key; a value reads back as `--config.a.b=value`."""
    return "\n".join(f"{k} = {v if isinstance(v, str) else repr(v)}" for k, v in flatten(cfg))


def _run_config_file(path: pathlib.Path) -> Config:
    if not path.is_file():
        raise FileNotFoundError(f"there is no config file {str(path)!r}; expected a Python file for --config")
    try:
        namespace = runpy.run_path(str(path))
        if not callable(namespace.get("get_config")):
            raise ConfigError(f"{path} defines no get_config(); expected a function that returns a Config")
        cfg = namespace["get_config"]()
    except SyntaxError as error:
        raise ConfigError(f"{path} is not valid Python: {error.msg} in line {error.lineno}") from error
    except TypeError as error:
        raise _unknown_keyword(error, path) from error
    if not isinstance(cfg, Config):
        raise ConfigError(f"get_config() of {path} returned a {type(cfg).__name__}; expected a Config")
    return cfg


def _unknown_keyword(error: TypeError, path: pathlib.Path) -> Exception:
    """A sentence for `SomeConfig(unknown=...)`; any other TypeError as it is."""
    match = re.match(r"(?:\w+\.)*?(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(error))
    sections = {Config.__name__: Config} | {cls.__name__: cls for cls in _sections(Config)}
    if match is None or match[1] not in sections:
        return error
    section, name = sections[match[1]], match[2]
    names = [f.name for f in dataclasses.fields(section)]
    return ConfigError(f"{path}: {match[1]} has no key {name!r}; {_nearest(name, names)}")


def _sections(cls: type) -> Iterator[type]:
    """Dataclasses that are reached from the fields of `cls`."""
    for hint in typing.get_type_hints(cls).values():
        section = _section(hint)
        if section is not None:
            yield section
            yield from _sections(section)


def _section(hint: Any) -> type | None:
    """The dataclass that a field of type `hint` holds, if it is one (or one that may be None)."""
    return next((t for t in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(t)), None)


def _keys(cls: type, prefix: str = "") -> Iterator[str]:
    for name, hint in typing.get_type_hints(cls).items():
        section = _section(hint)
        if section is None:
            yield prefix + name
        else:
            yield from _keys(section, f"{prefix}{name}.")


def _nearest(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else "the valid ones are " + ", ".join(names)


def _unknown_key(key: str, section: type, prefix: str) -> ConfigError:
    """Looks among the neighbours first, then for the same last name anywhere in the tree."""
    last = key.removeprefix(prefix).split(".")[0]
    neighbours = list(typing.get_type_hints(section))
    close = [prefix + name for name in difflib.get_close_matches(last, neighbours, n=1)]
    if not close:
        ends = {other.split(".")[-1]: other for other in reversed(list(_keys(Config)))}
        close = [ends[name] for name in difflib.get_close_matches(key.split(".")[-1], list(ends), n=1)]
    if close:
        return ConfigError(f"unknown key config.{key}; did you mean config.{close[0]}?")
    return ConfigError(f"unknown key config.{key}; the valid ones here are " + ", ".join(neighbours))


def _split(overrides: Sequence[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for argument in overrides:
        key, equals, text = argument.partition("=")
        if not key.startswith("--config.") or not equals:
            raise ConfigError(f"cannot read the argument {argument!r}; expected --config.key=value")
        key = key.removeprefix("--config.")
        if key in texts:
            raise ConfigError(f"config.{key} is given twice, as {texts[key]!r} and as {text!r}")
        texts[key] = text
    return texts


def _replace(section: Any, texts: dict[str, str], prefix: str) -> Any:
    """One `dataclasses.replace` per section, so that no half-changed section ever exists."""
    hints = typing.get_type_hints(type(section))
    changes: dict[str, Any] = {}
    parts: dict[str, dict[str, str]] = {}
    for key, text in texts.items():
        name, _, rest = key.removeprefix(prefix).partition(".")
        if name not in hints:
            raise _unknown_key(key, type(section), prefix)
        if not rest:
            changes[name] = _parse(text, hints[name], f"config.{key}")
        elif _section(hints[name]) is None:
            raise ConfigError(f"unknown key config.{key}; config.{prefix}{name} has no keys below it")
        else:
            parts.setdefault(name, {})[key] = text
    for name, below in parts.items():
        changes[name] = _replace(getattr(section, name), below, f"{prefix}{name}.")
    return dataclasses.replace(section, **changes)


def _set(section: Any, key: str, value: Any) -> Any:
    name, _, rest = key.partition(".")
    return dataclasses.replace(
        section, **{name: _set(getattr(section, name), rest, value) if rest else value}
    )


def _optional(hint: Any) -> Any:
    """X of `X | None`; None for any other type."""
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return None
    (inner,) = (t for t in typing.get_args(hint) if t is not types.NoneType)
    return inner


def _parse(text: str, hint: Any, key: str) -> Any:
    """Value of a command-line text under its declared type; nothing is evaluated but literals."""
    inner = _optional(hint)
    if inner is not None:
        return None if text.lower() in ("none", "null") else _parse(text, inner, key)
    if _section(hint) is not None:
        raise ConfigError(
            f"{key} is a section; give one of its keys, such as {key}.{next(_keys(hint))}=value"
        )
    if hint is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if hint is str or typing.get_origin(hint) is Literal:
        return _coerce(text, hint, key)
    if hint is float and text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return _coerce(float(text), hint, key)
    is_tuple = typing.get_origin(hint) is tuple
    if is_tuple and typing.get_args(hint)[0] is str and not text.lstrip().startswith(("(", "[")):
        return tuple(item.strip() for item in text.split(",") if item.strip())
    try:
        value = ast.literal_eval(text.strip() or "()") if is_tuple else ast.literal_eval(text.strip())
    except (ValueError, SyntaxError) as error:
        raise _wrong_type(text, hint, key) from error
    if is_tuple and not isinstance(value, (tuple, list)):
        value = (value,)
    return _coerce(value, hint, key)


def _coerce(value: Any, hint: Any, key: str) -> Any:
    """`value` as its declared type: whole numbers pass for float, lists for tuples, dicts for sections."""
    inner = _optional(hint)
    if inner is not None:
        return None if value is None else _coerce(value, inner, key)
    if dataclasses.is_dataclass(hint):
        return _coerce_section(value, hint, key)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and isinstance(value, (tuple, list)):
        items = [args[0]] * len(value) if args[-1] is Ellipsis else list(args)
        if len(items) != len(value):
            raise _wrong_type(value, hint, key)
        return tuple(
            _coerce(v, item, f"{key}[{i}]") for i, (v, item) in enumerate(zip(value, items, strict=True))
        )
    if origin is Literal:
        is_right = value in args
    elif hint is float:
        is_right = type(value) in (int, float) and math.isfinite(value)
    else:
        is_right = type(value) is hint  # not isinstance: True must not pass for the int 1
    if not is_right:
        raise _wrong_type(value, hint, key)
    return float(value) if hint is float else value


def _coerce_section(value: Any, section: type, key: str) -> Any:
    hints = typing.get_type_hints(section)
    if isinstance(value, section):
        value = {name: getattr(value, name) for name in hints}
    if not isinstance(value, dict):
        raise _wrong_type(value, section, key)
    prefix = (key + ".").removeprefix("config.")
    for name in value:
        if name not in hints:
            raise _unknown_key(f"{prefix}{name}", section, prefix)
    return section(**{name: _coerce(v, hints[name], f"{key}.{name}") for name, v in value.items()})


def _wrong_type(value: Any, hint: Any, key: str) -> ConfigError:
    return ConfigError(f"{key} is {value!r}; expected {_words(hint)}")


def _words(hint: Any) -> str:
    """A type as a user reads it: `one of 'error', 'filter'`, `a list of (int, int)`."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(repr(arg) for arg in args)
    if origin is tuple and args[-1] is Ellipsis:
        return f"a list of {_words(args[0]) if typing.get_origin(args[0]) else args[0].__name__}"
    if origin is tuple:
        return "(" + ", ".join(arg.__name__ for arg in args) + ")"
    words = {bool: "true or false", int: "a whole number", float: "a finite number", str: "a text"}
    return words.get(hint, hint.__name__)
