"""What the contract gives to every model: targets without a true entity, and scores that queries are compared by."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from biqe.errors import InvalidOption, UnsupportedQuery
from biqe.models import _catalogue
from biqe.models._contract import (
    FindsTuples,
    HasAttention,
    UsesGraph,
    check_options,
    has_entity_table,
    predictions,
    raw_scores,
    trace,
)
from biqe.query.bound import TARGET, AnswerSets, BoundQuery, QuerySet

ENTITIES = 12
QUERIES = QuerySet.of([BoundQuery((3, TARGET), ((0, 1, 1),), (1,)), BoundQuery((4, TARGET), ((0, 0, 1),), (1,))])

LOSSES = [
    ("gqe", {"loss": "softmax"}),
    ("gqe", {"loss": "margin"}),
    ("gqe", {"loss": "log_sigmoid"}),
    ("query2box", {"loss": "softmax"}),
    ("query2box", {"loss": "log_sigmoid"}),
    ("mpqe", {"loss": "softmax"}),
    ("mpqe", {"loss": "margin"}),
    ("tractor", {"loss": "softmax"}),
    ("tractor", {"loss": "likelihood"}),
]


def build(name, **options):
    torch.manual_seed(0)
    return _catalogue.build(name, options, ENTITIES, 3)


def asked(*gold):
    """The two queries with these gold entities."""
    return replace(QUERIES, gold=np.array([3, gold[0], 4, gold[1]], np.int32))


@pytest.mark.parametrize(("name", "options"), LOSSES, ids=str)
def test_targets_of_which_nothing_is_known_teach_nothing(name, options):
    model = build(name, **options)
    assert torch.isfinite(model.loss(model.encoder(asked(5, 6))))
    nothing = AnswerSets(np.zeros(3, np.int64), np.zeros(0, np.int32))
    for unknown in (asked(-1, -1), asked(-1, -1).with_filters(train=nothing)):
        with pytest.raises(UnsupportedQuery, match=f"{name} learns .* 2 of the 2 targets .*gold is -1") as error:
            model.loss(model.encoder(unknown))
        assert "gold entities" in error.value.hint
    batch = model.encoder(asked(5, -1))
    if name in ("gqe", "query2box"):  # they leave such a target out
        assert torch.isfinite(model.loss(batch))
    else:
        with pytest.raises(UnsupportedQuery, match="1 of the 2 targets"):
            model.loss(batch)


@pytest.mark.parametrize("name", _catalogue.names())
def test_optional_abilities_are_found_or_refused_in_a_sentence(name):
    model = build(name).eval()
    batch = model.encoder(QUERIES)
    assert predictions(model, batch) == 2
    assert raw_scores(model, batch).shape == (2, ENTITIES)
    if isinstance(model, HasAttention):
        assert torch.equal(trace(model, batch).scores, model.scores(batch))
    else:
        with pytest.raises(UnsupportedQuery, match=f"{name} has no attention"):
            trace(model, batch)
    assert has_entity_table(model) == (name in ("biqe", "hybrid"))
    assert isinstance(model, UsesGraph) == isinstance(model, FindsTuples) == (name in ("cqd", "hybrid"))


@dataclass(frozen=True)
class Options:
    """A configuration."""

    size: int = 1
    share: float = 0.5
    way: str = "a"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"size": 0}, "'size' of .* must be at least 1. Got 0"),
        ({"share": 1.0}, r"in \[0, 1\)"),
        ({"way": "c"}, "a or b"),
    ],
)
def test_options_out_of_range_are_refused(values, says):
    allowed = {"size": "at least 1", "share": "in [0, 1)", "way": ("a", "b")}
    check_options(Options(), allowed)
    with pytest.raises(InvalidOption, match=says):
        check_options(Options(**values), allowed)
    with pytest.raises(InvalidOption):
        check_options(Options(share=float("nan")), allowed)


@pytest.mark.parametrize("name", _catalogue.names())
def test_raw_scores_order_entities_as_scores_do(name):
    model = build(name).eval()
    with torch.no_grad():
        batch = model.encoder(QUERIES)
        raw, scores = raw_scores(model, batch), model.scores(batch)
    assert torch.equal(raw.argsort(1), scores.argsort(1))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gqe", {"loss": "log_sigmoid"}),
        ("gqe", {"loss": "softmax"}),
        ("mpqe", {}),
        ("query2box", {}),
    ],
)
def test_raw_scores_are_those_before_they_are_normalised(name, options):
    model = build(name, **options).eval()
    with torch.no_grad():
        batch = model.encoder(QUERIES)
        raw, scores = model.raw_scores(batch), model.scores(batch)
    torch.testing.assert_close(scores, raw.log_softmax(1))
    assert not torch.allclose(raw, scores)
