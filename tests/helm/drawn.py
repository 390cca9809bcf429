"""Values drawn from schemas of the kind that shapes.py has, and a whole set of values around one of the modes."""

import re
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from tests.helm.render import NEEDS, ci_modes, ci_values
from tests.helm.shapes import OBJECT, OBJECTS, Schema, shape
from tests.helm.values import Value, described

type Map = dict[str, Any]

ODD = ("", "0", "true", "null", "~", "1e3", "- x", "a: b", "a #b", "{{ x }}", "'", '"', "%", "ä", "-", "on", "0x10")


def drawn(schema: Schema) -> st.SearchStrategy[Any]:
    """Errors: NotImplementedError for a schema of another kind."""
    match schema:
        case {"enum": words}:
            return st.sampled_from(words)
        case {"const": word}:
            return st.just(word)
        case {"anyOf": choices}:
            return st.one_of([drawn(choice) for choice in choices])
        case {"type": "boolean"}:
            return st.booleans()
        case {"type": "integer"}:
            return st.integers(schema.get("minimum", 0), schema.get("maximum", 2**31 - 1))
        case {"type": "number"}:
            return _numbers(schema)
        case {"type": "string"}:
            return _texts(schema)
        case {"type": "array", "items": item}:
            return st.lists(drawn(item), max_size=3, unique_by=str)
        case {"type": "object"}:
            return _objects(schema)
        case _:
            raise NotImplementedError(f"no strategy for {schema}")


def _numbers(schema: Schema) -> st.SearchStrategy[float]:
    least, above = schema.get("minimum", 0), schema.get("exclusiveMinimum", -1)
    most, below = schema.get("maximum", 10**6), schema.get("exclusiveMaximum", 10**7)
    rounded = st.floats(max(least, above), min(most, below), allow_nan=False).map(lambda number: round(number, 3))
    return rounded.filter(lambda number: above < number < below)


def _texts(schema: Schema) -> st.SearchStrategy[str]:
    """Also what YAML would take for something else than a text. Helm's \\w is ASCII."""
    pattern = schema.get("pattern", "^.*$")
    whole = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    any_text = st.from_regex(whole, alphabet=st.characters(exclude_categories=["C"]))
    odd = st.sampled_from(ODD).filter(lambda text: _fits(pattern, text))
    fitting = st.one_of(any_text, odd) if any(_fits(pattern, text) for text in ODD) else any_text
    return fitting.filter(lambda text: len(text) <= schema.get("maxLength", 200))


def _fits(pattern: str, text: str) -> bool:
    return re.search(pattern.replace("$", r"\Z"), text, re.ASCII) is not None


def _objects(schema: Schema) -> st.SearchStrategy[Map]:
    properties = {name: drawn(its) for name, its in schema.get("properties", {}).items()}
    required = {name: properties.pop(name) for name in schema.get("required", [])}
    fixed = st.fixed_dictionaries(required, optional=properties)
    if not schema.get("additionalProperties"):
        return fixed
    names = st.from_regex(r"\A[a-z][a-z0-9]{0,8}(\.io/[a-z]{1,8})?\Z")
    return st.dictionaries(names, drawn(schema["additionalProperties"]), max_size=3)


def _is_drawn(value: Value) -> bool:
    """Not what is handed on to Kubernetes as it is: an object of any fields is no object that it would take."""
    text = str(shape(value.path, value.default))
    return (
        str(OBJECT) not in text and str(OBJECTS) not in text and value.path not in ("pools", "engine.securityContext")
    )


DRAWN = [value for value in described() if _is_drawn(value)]


@st.composite
def drawn_values(draw: st.DrawFn, fewest: int, most: int) -> Map:
    """A mode's values with so many others, each as its own schema allows."""
    values = deepcopy(ci_values(draw(st.sampled_from([mode for mode in ci_modes() if mode not in NEEDS]))))
    for value in draw(st.lists(st.sampled_from(DRAWN), min_size=fewest, max_size=most, unique_by=lambda one: one.path)):
        *above, last = value.path.split(".")
        place: Map = values
        for name in above:
            place = place.setdefault(name, {})
        place[last] = draw(drawn(shape(value.path, value.default)))
    return values
