"""values.yaml, its schema and its table are one; what the schema lets through renders, or fails with a sentence."""

import json
from typing import Any

import jsonschema
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests.helm.drawn import drawn_values
from tests.helm.generate import main, readme_text, schema_text
from tests.helm.kinds import problems
from tests.helm.render import KUBERNETES, Cluster, Object, RenderError, named, render
from tests.helm.rules import EXCEPTIONS, RULES
from tests.helm.values import CHART, described

type Map = dict[str, Any]

SENTENCES = "templates/validations.yaml"
MOST_LINES = {"values.yaml": 300, "template": 120}


def test_schema_and_table_are_made_from_the_values():
    assert (CHART / "values.schema.json").read_text() == schema_text()
    assert (CHART / "README.md").read_text() == readme_text()
    assert main(["--check"]) == 0


def test_every_value_has_one_sentence_and_the_file_is_short():
    assert [value.path for value in described() if "\n" in value.sentence] == []
    assert len((CHART / "values.yaml").read_text().splitlines()) < MOST_LINES["values.yaml"]


def test_every_template_is_short():
    lines = {path.name: len(path.read_text().splitlines()) for path in (CHART / "templates").rglob("*.*")}
    assert {name: number for name, number in lines.items() if number >= MOST_LINES["template"]} == {}


def rendered(values: Map, cluster: Cluster) -> list[Object]:
    """The objects; none where the chart says in a sentence that it can't be. Errors: whatever else helm says."""
    try:
        return render(values, cluster)
    except RenderError as error:
        if SENTENCES not in str(error) or "\n- " not in str(error):
            raise AssertionError(f"no sentence of ours: {error}\nvalues: {values}") from error
        return []


DRAWING = settings(
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    print_blob=False,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.large_base_example],
)
SCHEMA = jsonschema.Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))


@settings(DRAWING, max_examples=50)
@given(values=drawn_values(fewest=3, most=10))
def test_values_that_fit_one_by_one_fit_the_whole_schema(values: Map):
    assert [error.message for error in SCHEMA.iter_errors(values)] == []


# Each example is a run of helm: few, of many values each, and a failure is shown as it was found.
@settings(DRAWING, max_examples=15)
@given(values=drawn_values(fewest=3, most=10), kubernetes=st.sampled_from(KUBERNETES))
def test_whatever_the_schema_allows_renders_or_fails_with_a_sentence(values: Map, kubernetes: str):
    objects = rendered(values, Cluster(kubernetes))
    assume(objects)
    assert [f"{named(one)}: {problem}" for one in objects for problem in problems(one, kubernetes)] == []
    assert [
        line for rule in RULES for line in rule(objects) if line not in EXCEPTIONS and "resources" not in line
    ] == []
