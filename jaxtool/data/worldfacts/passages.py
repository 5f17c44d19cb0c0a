"""The corpus: short passages about countries, cities, currencies, languages, elements and people.

Host code.  In: records of `facts.py`.  Out: (title, text) pairs of 15 to 40 words.  A passage speaks
of one relation and names its subject in the title, so that BM25 finds it.  The passage of a capital
names the country and nothing else about it, so that a two-hop question takes two searches.
"""

from collections import Counter, defaultdict

from jaxtool.data.worldfacts.facts import Country, Element

Passage = tuple[str, str]  # title, text

ARTICLE_REGIONS = ("Caribbean", "Channel Islands", "Americas")
NAMED = 8  # members of a long list that a passage names


def listing(items: list[str]) -> str:
    """a; a and b; a, b and c."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def region_phrase(region: str) -> str:
    return "the " * (region in ARTICLE_REGIONS) + region


def corpus(countries: list[Country], elements: list[Element]) -> list[Passage]:
    cities = Counter(c.capital[0] for c in countries if c.capital)
    passages = [p for c in countries for p in country_passages(c, cities)]
    passages += shared_passages(countries)
    passages += [p for element in elements for p in element_passages(element)]
    return passages + person_passages(elements)


def country_passages(c: Country, cities: Counter[str]) -> list[Passage]:
    """`cities` counts the capitals of one name: a title names the country too where that is needed."""
    the, subject = c.the, capitalized(c.the)
    where = f", in {region_phrase(c.regions[0])}" if c.regions else ""
    passages = []
    if c.capital:
        city = c.capital[0]
        text = f"The capital of {the} is {city}. The city of {city} is the capital city of {the}{where}."
        passages.append((f"Capital of {the}", text))
        if city != c.names[0]:
            title = city if cities[city] == 1 else f"{city} ({c.names[0]})"
            start = f"The {c.word} whose capital is {city} is {the}."
            if not c.word:
                start = f"The capital of {the} is {city}."
            passages.append((title, f"{city} is a capital city. {start} {city} is the capital of {the}."))
    if c.demonyms:
        other = f" Another form of it is {c.demonyms[1]}." if len(c.demonyms) > 1 else ""
        demonym = c.demonyms[0]
        text = f"The demonym of {the} is {demonym}. A person from {the} is called by the demonym {demonym}."
        passages.append((f"Demonym of {the}", text + other))
    if c.currencies:
        money = listing([f"the {names[0]} (code {names[1]})" for names in c.currencies])
        use = f"This is the currency used in {the}, and people in {the} pay with it."
        passages.append((f"Currency of {the}", f"The currency of {the} is {money}. {use}"))
    if c.languages:
        names = [names[0] for names in c.languages]
        start = f"The official language of {the} is"
        if len(names) > 1:
            start = f"The official languages of {the} are"
        text = f"{start} {listing(names)}. {names[0]} has the status of an official language in {the}{where}."
        passages.append((f"Official language of {the}", text))
    if c.regions:
        here = region_phrase(c.regions[0])
        text = f"{subject} is in {here}. On a map of the world regions, {the} lies in the region of {here}."
        passages.append((f"Region of {the}", text))
    if c.borders is not None:
        passages.append((f"Borders of {the}", _borders(c)))
    return passages


def _borders(c: Country) -> str:
    subject = capitalized(c.the)
    if not c.borders:
        return f"{subject} has no land borders, so it has no neighbours by land. No land borders {c.the}."
    if len(c.borders) == 1:
        start = f"{subject} has a land border with one neighbour."
        return f"{start} The only neighbour of {c.the} by land is {c.borders[0]}."
    start = f"{subject} has land borders with {len(c.borders)} neighbours."
    return f"{start} Its neighbours by land are {listing(list(c.borders))}."


def shared_passages(countries: list[Country]) -> list[Passage]:
    """One passage per currency and per language, with where it is used."""
    money: dict[tuple[str, ...], list[str]] = defaultdict(list)
    spoken: dict[str, list[str]] = defaultdict(list)
    for c in countries:
        for names in c.currencies:
            money[names].append(c.the)
        for names in c.languages:
            spoken[names[0]].append(c.the)
    passages = []
    for names, users in sorted(money.items()):
        text = f"The {names[0]}, with the code {names[1]}, is a currency. It is the money of {_some(users)}."
        passages.append((capitalized(names[0]), text))
    for name, users in sorted(spoken.items()):
        status = f"{name} has the status of an official language in {_some(users)}."
        passages.append((f"{name} language", f"{name} is a language of the world. {status}"))
    return passages


def _some(users: list[str]) -> str:
    if len(users) <= NAMED:
        return listing(users)
    return f"{len(users)} countries and territories, among them {listing(users[:NAMED])}"


def element_passages(e: Element) -> list[Passage]:
    name, subject = e.name, e.name.capitalize()
    formulas = f"In chemical formulas, {e.symbol} is written for {name}."
    passages = [(f"Symbol of {name}", f"The symbol of the element {name} is {e.symbol}. {formulas}")]
    if e.discoverers:
        by = listing(list(e.discoverers))
        they = f"{by} is the discoverer" if len(e.discoverers) == 1 else "they are the discoverers"
        text = (
            f"It was {by} who discovered the element {name}. In the history of chemistry, {they} of {name}."
        )
        passages.append((f"Discoverer of {name}", text))
    if e.year:
        start = f"The element {name} was discovered in the year {e.year}."
        passages.append(
            (f"Discovery year of {name}", f"{start} The discovery of {name} happened in {e.year}.")
        )
    if e.places:
        places = " and ".join(("the " * p.startswith("United")) + p for p in e.places)
        those = f"country where {name} was discovered is"
        if len(e.places) > 1:
            those = f"countries where {name} was discovered are"
        text = f"The element {name} was discovered in {places}. The {those} {places}."
        passages.append((f"Discovery place of {name}", text))
    if e.after:
        start = f"The element {name} is named after {e.after}."
        passages.append((f"Name of {name}", f"{start} The origin of the name {name} is {e.origin[0]}."))
    elif e.origin:
        start = f'The name of the element {name} comes from the {e.language} word "{e.word}".'
        end = f'{subject} is named for this word, and the meaning of the word is "{e.origin[0]}".'
        passages.append((f"Name of {name}", f"{start} {end}"))
    place = f"In the periodic table, {name} has place number {e.number}."
    passages.append((subject, f"{subject} is a chemical element with atomic number {e.number}. {place}"))
    return passages


def person_passages(elements: list[Element]) -> list[Passage]:
    found: dict[str, list[str]] = defaultdict(list)
    for e in elements:
        for person in e.discoverers:
            found[person].append(e.name)
    passages = []
    for person, names in sorted(found.items()):
        what = "Element" if len(names) == 1 else "Elements"
        start = f"{person} took part in the discovery of {listing(names)}."
        passages.append((person, f"{start} {what} discovered by {person}: {listing(names)}."))
    return passages
