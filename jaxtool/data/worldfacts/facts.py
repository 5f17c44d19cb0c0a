"""Clean facts from the packages `countryinfo` and `mendeleev`.  Host code.

In: the two packages (needed only here) and `cleaning.json`, which corrects, completes or drops what
is outdated, disputed or misspelt in them.  Out: one frozen record per country and element; a fact
that is missing or was dropped is an empty tuple (or None), and nothing downstream speaks of it.
Every tuple of names has the form to print first and other right forms after it.
"""

import dataclasses
import json
import pathlib
import unicodedata
from typing import Any


@dataclasses.dataclass(frozen=True)
class Country:
    code: str  # ISO 3166-1 alpha-3
    names: tuple[str, ...]
    the: str  # the name as it stands in a sentence: "the Bahamas"
    word: str  # "country", "territory", or "" where that is disputed
    regions: tuple[str, ...]  # the narrowest first, the widest second or third, then other names
    capital: tuple[str, ...]
    demonyms: tuple[str, ...]
    currencies: tuple[tuple[str, ...], ...]  # each: name, code, other names
    languages: tuple[tuple[str, ...], ...]  # each: name, other names
    borders: tuple[str, ...] | None  # neighbours as they stand in a sentence; None is not known


@dataclasses.dataclass(frozen=True)
class Element:
    symbol: str
    name: str  # lower case
    other_names: tuple[str, ...]  # British spelling
    number: int
    discoverers: tuple[str, ...]
    year: int | None
    places: tuple[str, ...]  # countries, as in the source: England and Scotland apart
    after: str  # what it is named after, as a phrase; "" if its name comes from a plain word
    origin: tuple[str, ...]  # short answers: what it is named after, or what the word means
    language: str  # of that word; "" if named after something
    word: str  # that word; "" if named after something


def unique(items: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for item in items if item))


def plain(text: str) -> str:
    """The text without accents, as a user may type it."""
    text = text.translate(str.maketrans("łđØʻ", "ldO'"))  # letters that have no decomposition
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def with_plain(names: list[str]) -> tuple[str, ...]:
    return unique(names + [plain(name) for name in names if plain(name) != name])


def load_cleaning() -> dict[str, Any]:
    return json.loads(pathlib.Path(__file__).with_name("cleaning.json").read_text(encoding="utf-8"))


def load_countries() -> list[Country]:
    """Every usable country and territory, by code."""
    from countryinfo import CountryInfo

    clean = load_cleaning()
    raw = {}
    for key, entry in sorted(CountryInfo.all().items()):
        code = entry.get("ISO", {}).get("alpha3")
        if code and key not in clean["skip_entries"] and code not in clean["drop_countries"]:
            raw[code] = entry
    names = {code: with_plain(clean["names"].get(code, [entry["name"]])) for code, entry in raw.items()}
    the = {code: "the " * (code in clean["articles"]) + known[0] for code, known in names.items()}
    the |= clean["outside"]
    neighbours = _neighbours(raw, clean)
    units = [name.split()[-1] for name in clean["currency_names"].values()]

    def currency(code: str) -> tuple[str, ...]:
        name = clean["currency_names"][code]
        # "baht" names the Thai baht alone, so it is a right answer; "dollar" is not one.
        unit = [name.split()[-1]] if units.count(name.split()[-1]) == 1 else []
        return with_plain([name, code, *unit, *clean["currency_aliases"].get(code, [])])

    def language(code: str) -> tuple[str, ...]:
        name = clean["language_names"].get(code, code)  # cleaning.json may give a name where there is no code
        return unique([name, *clean["language_aliases"].get(name, [])])

    def region(known: list[str]) -> tuple[str, ...]:
        return unique(known + [alias for name in known for alias in clean["region_aliases"].get(name, [])])

    def facts(code: str, what: str, source: Any) -> list[str]:
        if code in clean["drop_" + what]:
            return []
        return clean[what].get(code, source) or []

    countries = []
    for code in sorted(raw):
        entry = raw[code]
        capital, demonym = entry.get("capital"), entry.get("demonym")
        regions = list(unique([entry.get(k) for k in ("intermediateregion", "subregion", "region")]))
        word = "territory" if code in clean["territories"] else "country"
        countries.append(
            Country(
                code=code,
                names=names[code],
                the=the[code],
                word="" if code in clean["disputed"] else word,
                regions=() if code in clean["drop_regions"] else region(regions),
                capital=with_plain(facts(code, "capitals", [capital] if isinstance(capital, str) else [])),
                demonyms=with_plain(facts(code, "demonyms", [demonym] if demonym else [])),
                currencies=tuple(currency(c) for c in facts(code, "currencies", entry.get("currencies"))),
                languages=tuple(language(c) for c in facts(code, "languages", entry.get("languages"))),
                borders=None if neighbours[code] is None else tuple(the[n] for n in neighbours[code]),
            )
        )
    return countries


def _neighbours(raw: dict[str, Any], clean: dict[str, Any]) -> dict[str, list[str] | None]:
    """Codes of the neighbours: pairs that either side lists, but for those known to be wrong."""
    codes = {"KOS": "XKX", "IT": "ITA"}  # two spellings of the source
    wrong = {frozenset(pair.split()) for pair in clean["not_borders"]}
    listed = {code: entry.get("borders") for code, entry in raw.items()}
    pairs = {frozenset((a, codes.get(b, b))) for a, bs in listed.items() for b in bs or []} - wrong
    known = raw.keys() | clean["outside"].keys()
    result: dict[str, list[str] | None] = {}
    for code in raw:
        unknown = listed[code] is None or code in clean["drop_borders"]
        others = sorted(n for pair in pairs if code in pair for n in pair - {code} if n in known)
        result[code] = None if unknown else others
    return result


def load_elements() -> list[Element]:
    """Every element, by atomic number."""
    from mendeleev.fetch import fetch_table

    clean = load_cleaning()
    elements = []
    for entry in fetch_table("elements").sort_values("atomic_number").itertuples():
        symbol = entry.symbol
        origin = clean["origins"].get(symbol, {})
        known = entry.discovery_year == entry.discovery_year  # a year that is missing is NaN
        year = clean["years"].get(symbol, int(entry.discovery_year) if known else None)
        places = entry.discovery_location if isinstance(entry.discovery_location, str) else ""
        elements.append(
            Element(
                symbol=symbol,
                name=entry.name.lower(),
                other_names=tuple(clean["element_names"].get(symbol, [])),
                number=int(entry.atomic_number),
                discoverers=tuple(clean["discoverers"].get(symbol, [])),
                year=None if symbol in clean["drop_years"] else year,
                places=() if symbol in clean["drop_places"] else unique(places.split("/")),
                after=origin.get("after", ""),
                origin=with_plain(origin.get("answers", origin.get("meaning", []))),
                language=origin.get("language", ""),
                word=origin.get("word", ""),
            )
        )
    return elements
