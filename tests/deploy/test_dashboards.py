"""Dashboards and alert rules against what the processes export: names, labels, and that no replica is counted twice."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from api.metrics import registry_of
from api.publisher import Snapshot
from api.sampler import Sampler
from rolloutfleet.metrics import RunCounters, RunGauges, WorkerMetrics
from rolloutfleet.window import Reason
from tests.api import page_data
from tests.fakes.broker import fake_client

promql = pytest.importorskip("promql_parser", reason="promql-parser is not installed: it reads the expressions")

ROOT = Path(__file__).parents[2]
ALERTS = sorted((ROOT / "deploy" / "alerts").glob("*.yaml"))
DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
# What Grafana puts in before Prometheus reads it, and labels that the scrape adds.
VARIABLES = {"$__rate_interval": "5m", "$namespace": "rl", "$run": "math"}
TARGET_LABELS = {"namespace", "le"}
REPLICA_SAFE = {"max", "min"}


@dataclass(frozen=True, slots=True)
class Expression:
    """One expression, and where it is written."""

    where: str
    text: str


def rules() -> list[dict[str, Any]]:
    groups = [group for path in ALERTS for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


def boards() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in DASHBOARDS}


def expressions() -> list[Expression]:
    found = [Expression(rule["alert"], rule["expr"]) for rule in rules()]
    for name, board in boards().items():
        for panel in board["panels"]:
            found += [Expression(f"{name}: {panel['title']}", target["expr"]) for target in panel["targets"]]
    return found


EVERY = pytest.mark.parametrize("expression", [pytest.param(one, id=one.where) for one in expressions()])


def parsed(expression: Expression) -> Any:
    text = expression.text
    for name, value in VARIABLES.items():
        text = text.replace(name, value)
    return promql.parse(text)


def children(node: Any) -> Iterator[Any]:
    for name in ("lhs", "rhs", "expr", "vector_selector"):
        if (child := getattr(node, name, None)) is not None:
            yield child
    yield from getattr(node, "args", ())


def selectors(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Each selector of a metric, with the aggregations around it, the innermost first."""
    if isinstance(node, promql.VectorSelector):
        yield node, above
        return
    around = (node, *above) if isinstance(node, promql.AggregateExpr) else above
    for child in children(node):
        yield from selectors(child, around)


def exported() -> dict[str, set[str]]:
    """Sample name -> its labels, out of the text that a worker and the status service answer."""
    found: dict[str, set[str]] = {}
    for text in (generate_latest(WorkerMetrics().registry).decode(), service_text()):
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
            for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
                found.setdefault(name + suffix, set())
    return found


def service_text() -> str:
    sampler = Sampler(fake_client(), 600)
    run = page_data.run_status(counters={"completed": 1, "samples": 8, "tokens": 64})
    return generate_latest(registry_of(Snapshot(page_data.reply(run)), sampler)).decode()


def labels_of_workers() -> dict[str, set[str]]:
    """Labels of the worker's metrics: without a count no sample shows them."""
    metrics = WorkerMetrics()
    labelled = {"groups": "outcome", "claims": "reason", "retries": "cause", "engine_faults": "fault"}
    assert all(hasattr(metrics, name) for name in labelled)
    return {f"rolloutfleet_worker_{name}_total": {label} for name, label in labelled.items()}


NAMES = exported()


@EVERY
def test_every_metric_is_exported(expression: Expression) -> None:
    names = {selector.name for selector, _ in selectors(parsed(expression))}

    assert names
    assert names <= set(NAMES)


@EVERY
def test_replicas_of_the_status_service_are_never_added_up(expression: Expression) -> None:
    for selector, around in selectors(parsed(expression)):
        if selector.name.startswith("rolloutfleet_worker_") or expression.text.startswith("absent("):
            continue
        assert around, selector.name
        assert str(around[0].op) in REPLICA_SAFE, selector.name


@EVERY
def test_what_is_added_up_keeps_its_parts_apart_until_then(expression: Expression) -> None:
    """A sum over states must see each state once: the maximum over the replicas keeps that label."""
    for selector, around in selectors(parsed(expression)):
        if len(around) < 2 or selector.name.startswith("rolloutfleet_worker_"):
            continue
        extra = labels_of(selector.name) - {"run"}
        assert extra <= set(around[0].modifier.labels), selector.name


def labels_of(name: str) -> set[str]:
    known = {one.name: set(one.labels) for one in vars(RunGauges).values() if hasattr(one, "labels")}
    known |= {f"{one.name}_total": set(one.labels) for one in (RunCounters.behind, RunCounters.released)}
    return known.get(name, NAMES[name])


@EVERY
def test_every_label_is_one_that_the_metric_has(expression: Expression) -> None:
    workers = labels_of_workers()
    for selector, around in selectors(parsed(expression)):
        has = labels_of(selector.name) | workers.get(selector.name, set()) | TARGET_LABELS
        assert {matcher.name for matcher in selector.matchers.matchers} <= has
        for aggregation in around:
            if aggregation.modifier is not None:
                assert set(aggregation.modifier.labels) <= has, aggregation


@EVERY
def test_every_value_of_a_label_is_a_word_that_is_exported(expression: Expression) -> None:
    known = words()
    for selector, _ in selectors(parsed(expression)):
        for matcher in selector.matchers.matchers:
            if matcher.name in ("reason", "state"):
                assert set(matcher.value.split("|")) <= known[matcher.name], matcher.value


def words() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {"reason": {str(reason) for reason in Reason}, "state": set()}
    for family in text_string_to_metric_families(service_text()):
        for sample in family.samples:
            for label in found.keys() & sample.labels.keys():
                found[label].add(sample.labels[label])
    return found


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in rules()])
def test_every_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description", "action"}
    assert all(len(text.split()) >= 4 for text in rule["annotations"].values())


def test_what_the_operators_asked_for_is_watched() -> None:
    names = {rule["alert"].removeprefix("Rolloutfleet") for rule in rules()}

    assert names >= {
        *("NoProgress", "DeadLetters", "WorkersLost", "SlotsIdle", "TrainerBehind"),
        *("RedisMemory", "StaleSamples", "StatusStale"),
    }


def test_alerts_on_workers_leave_out_those_that_drain() -> None:
    for rule in rules():
        for selector, _ in selectors(promql.parse(rule["expr"])):
            if selector.name == "rolloutfleet_workers":
                (matcher,) = selector.matchers.matchers
                is_left_out = matcher.op == promql.MatchOp.NotEqual and matcher.value == "draining"
                assert is_left_out or "draining" not in matcher.value.split("|")


@pytest.mark.parametrize("name", boards())
def test_dashboards_can_be_imported_anywhere(name: str) -> None:
    board = boards()[name]
    panels = cast(list[dict[str, Any]], board["panels"])

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    assert {"datasource", "namespace"} <= {variable["name"] for variable in board["templating"]["list"]}
    assert all(panel["title"] for panel in panels)


@pytest.mark.parametrize("name", boards())
def test_panels_do_not_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in boards()[name]["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.parametrize("name", boards())
def test_pickers_ask_for_metrics_that_are_there(name: str) -> None:
    queries = [one["definition"] for one in boards()[name]["templating"]["list"] if one["type"] == "query"]
    named = {metric for query in queries for metric in re.findall(r"rolloutfleet_\w+", query)}

    assert named
    assert named <= set(NAMES)
