"""The encoder: equivariance, batches, the reference in another library, and what each kind of positions can tell."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from biqe.errors import InvalidOption
from biqe.models._draws import PooledDropout
from biqe.models.biqe import BiQE, Config
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet
from biqe.query.tokens import FIRST_ENTITY, token_count
from biqe.training.presets import PRESETS

ENTITIES, RELATIONS = 30, 4
VARIANTS = [
    dict(positions=positions, mask_average=average, norm=norm)
    for positions, average, norm in itertools.product(
        ("paper", "structure"), ("hidden", "probability"), ("pre", "post")
    )
]
TWINS = BoundQuery(
    (7, TARGET, 8, TARGET, TARGET, TARGET), ((0, 0, 1), (1, 1, 4), (2, 2, 3), (3, 1, 4), (4, 3, 5)), (1, 3, 4, 5)
)
QUERIES = (
    BoundQuery((3, TARGET), ((0, 1, 1),), (1,)),
    BoundQuery((5, HIDDEN, TARGET, TARGET), ((0, 0, 1), (1, 1, 2), (2, 2, 3)), (2, 3)),
    BoundQuery((7, TARGET, 8, TARGET, TARGET), ((0, 0, 1), (1, 1, 3), (2, 2, 3), (3, 3, 4)), (1, 3, 4)),
    TWINS,
)


def scores(model, *queries):
    with torch.inference_mode():
        return model.scores(model.encoder(QuerySet.of(queries)))


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_a_query_scores_the_same_alone_and_among_others(make_model, options):
    model = make_model(**options)
    together = scores(model, *QUERIES)
    alone = torch.cat([scores(model, query) for query in QUERIES])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_scores_are_log_probabilities(make_model, options):
    found = scores(make_model(**options), *QUERIES)
    assert found.shape == (10, ENTITIES)
    torch.testing.assert_close(found.exp().sum(1), torch.ones(10), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_permuting_the_branches_permutes_nothing_but_the_branches(make_model, options):
    """Nodes renamed and edges reordered: each target keeps its distribution (equivariance, the paper)."""
    model = make_model(**options)
    query = QUERIES[2]
    before = scores(model, query)
    for order in itertools.permutations(range(len(query.nodes))):
        place = {old: new for new, old in enumerate(order)}
        nodes = tuple(query.nodes[old] for old in order)
        edges = tuple((place[s], r, place[o]) for s, r, o in reversed(query.edges))
        permuted = BoundQuery(nodes, edges, tuple(sorted(place[t] for t in query.targets)))
        after = scores(model, permuted)
        row = {node: number for number, node in enumerate(permuted.targets)}
        expected = torch.stack([after[row[place[target]]] for target in query.targets])
        torch.testing.assert_close(before, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_trace_gives_the_same_scores_and_attention_that_sums_to_one(make_model, options):
    model = make_model(**options)
    batch = model.encoder(QuerySet.of(QUERIES))
    with torch.inference_mode():
        trace = model.trace(batch)
        torch.testing.assert_close(trace.scores, model.scores(batch), rtol=1e-4, atol=1e-5)
    assert len(trace.attention) == 2
    for layer in trace.attention:
        torch.testing.assert_close(layer.sum(-1), torch.ones(layer.shape[:-1]), rtol=1e-4, atol=1e-5)
        hidden_columns = batch.padding[:, None, None, :].expand_as(layer)
        assert layer[hidden_columns].eq(0).all(), "nobody looks at padding"


def test_the_papers_positions_cannot_tell_equal_depth_targets_apart(make_model):
    paper = scores(make_model(positions="paper", mask_average="probability"), TWINS)
    torch.testing.assert_close(paper[0], paper[1], rtol=1e-5, atol=1e-6)
    structure = scores(make_model(positions="structure", mask_average="probability"), TWINS)
    assert (structure[0] - structure[1]).abs().max() > 1e-3, "a thousand times the tolerance above"


def test_a_query_needs_no_constant(make_model):
    """The paper says that BiQE can answer such queries, and leaves them out of its experiments as unrealistic."""
    free = BoundQuery((TARGET, HIDDEN, TARGET), ((0, 0, 1), (1, 1, 2)), (0, 2))
    found = scores(make_model(positions="paper"), free)
    torch.testing.assert_close(found.exp().sum(1), torch.ones(2))
    assert (found[0] - found[1]).abs().max() > 1e-3, "the two ends are told apart"


def test_supports_refuses_with_a_reason(make_model):
    paper, structure = make_model(positions="paper"), make_model(positions="structure")
    named = BoundQuery(TWINS.nodes, TWINS.edges, TWINS.targets, ("", "a", "", "b", "x", "y"))
    refused = paper.supports(named)
    assert not refused and "?a and ?b" in refused.reason and "structure" in refused.hint
    assert paper.supports(named, strict=False) and structure.supports(named)
    cycle = BoundQuery((1, TARGET, TARGET), ((0, 0, 1), (1, 0, 2), (2, 1, 1)), (1, 2))
    assert "cycle" in structure.supports(cycle).reason
    apart = BoundQuery((1, TARGET, 2, TARGET), ((0, 0, 1), (2, 0, 3)), (1, 3))
    assert "separate" in structure.supports(apart).reason
    long = BoundQuery((1, *([TARGET] * 20)), tuple((i, 0, i + 1) for i in range(20)), tuple(range(1, 21)))
    assert "32 tokens" in structure.supports(long).reason


def test_the_masks_of_one_target_are_averaged(make_model):
    """Under mask_average=probability, a target's distribution is the mean of the distributions at its masks."""
    model = make_model(mask_average="probability")
    batch = model.encoder(QuerySet.of([QUERIES[2]]))
    with torch.inference_mode():
        at_masks = model.hidden(batch)[0][batch.masks]
        each = torch.softmax(model.head(at_masks) @ model.embed_entities.weight.T + model.entity_bias, 1)
        found = model.scores(batch).exp()
    for target in range(3):
        torch.testing.assert_close(found[target], each[batch.mask_targets == target].mean(0), rtol=1e-4, atol=1e-6)


class BertLayer(nn.Module):
    """A layer of BERT as Devlin et al. 2019 and their implementation have it, one operation after the other."""

    def __init__(self, width, heads, between, share):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.between, self.back = nn.Linear(width, between), nn.Linear(between, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-12) for _ in range(2))
        self.drop_weights, self.drop_attention, self.drop_back = (nn.Dropout(share) for _ in range(3))

    def forward(self, x, seen):
        shape = (*x.shape[:2], self.heads, -1)
        q, k, v = (linear(x).view(shape).transpose(1, 2) for linear in (self.query, self.key, self.value))
        logits = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
        weights = self.drop_weights(logits.masked_fill(~seen[:, None, None, :], -torch.inf).softmax(-1))
        x = self.norms[0](x + self.drop_attention(self.out((weights @ v).transpose(1, 2).flatten(2))))
        inner = self.between(x)
        inner = inner * 0.5 * (1.0 + torch.erf(inner / 2.0**0.5))
        return self.norms[1](x + self.drop_back(self.back(inner)))


class Bert(nn.Module):
    """Embeddings, layers, and the head that predicts masked tokens, without its output embeddings."""

    def __init__(self, tokens, positions, width, layers, heads, between, share=0.1):
        super().__init__()
        self.words, self.positions = nn.Embedding(tokens, width), nn.Embedding(positions, width)
        self.norm, self.drop = nn.LayerNorm(width, eps=1e-12), nn.Dropout(share)
        self.layers = nn.ModuleList(BertLayer(width, heads, between, share) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=1e-12))

    def forward(self, words, positions, seen):
        x = self.drop(self.norm(self.words(words) + self.positions(positions)))
        for layer in self.layers:
            x = layer(x, seen)
        return x


class Marked(nn.Module):
    """Stands in for dropout, so that both models must drop in the same places to agree: each place has its factor."""

    def __init__(self, factor):
        super().__init__()
        self.share, self.factor = 0.1, factor

    def forward(self, x):
        return x * self.factor


@pytest.mark.parametrize("training", [False, True])
def test_the_preset_is_bert_but_for_vocabulary_and_positions(training):
    """Same weights, same hidden states; and dropout in the same places."""
    torch.manual_seed(0)
    sizes = dict(width=16, layers=3, heads=4, feed_forward=32)
    ours = BiQE(Config(**{**PRESETS["paper"].model_config, **sizes}), ENTITIES, RELATIONS).train(training)
    assert {module.share for module in ours.modules() if isinstance(module, PooledDropout)} == {0.1}
    bert = Bert(token_count(ENTITIES, RELATIONS), ours.config.max_position, 16, 3, 4, 32).train(training)
    with torch.no_grad():
        for parameter in bert.parameters():
            parameter.normal_(std=0.3)
        words, last = bert.words.weight, FIRST_ENTITY + ENTITIES
        ours.embed_entities.weight.copy_(words[FIRST_ENTITY:last])
        ours.embed_others.weight.copy_(torch.cat([words[:FIRST_ENTITY], words[last:]]))
        ours.embed_positions.load_state_dict(bert.positions.state_dict())
        ours.embed_norm.load_state_dict(bert.norm.state_dict())
        for mine, theirs in zip(ours.layers, bert.layers, strict=True):
            joined = [theirs.query, theirs.key, theirs.value]
            mine.attention_in.weight.copy_(torch.cat([part.weight for part in joined]))
            mine.attention_in.bias.copy_(torch.cat([part.bias for part in joined]))
            pairs = [("attention_out", theirs.out), ("feed_in", theirs.between), ("feed_out", theirs.back)]
            for name, part in [*pairs, ("attention_norm", theirs.norms[0]), ("feed_norm", theirs.norms[1])]:
                getattr(mine, name).load_state_dict(part.state_dict())
    if training:
        ours.dropout = bert.drop = Marked(0.9)
        for number, (mine, theirs) in enumerate(zip(ours.layers, bert.layers, strict=True)):
            mine.attention_dropout = theirs.drop_weights = Marked(0.5 + 0.1 * number)
            # One module of ours serves both places; a place that lacked it would show.
            mine.dropout = theirs.drop_attention = theirs.drop_back = Marked(0.8 - 0.1 * number)
    batch = ours.encoder(QuerySet.of(QUERIES))
    with torch.no_grad():
        expected = bert(batch.tokens, batch.positions, ~batch.padding)
        found = ours.hidden(batch)
    torch.testing.assert_close(found[~batch.padding], expected[~batch.padding], rtol=1e-4, atol=1e-5)


def test_the_large_preset_has_the_weights_of_bert_base():
    preset = PRESETS["paper-base"]
    with torch.device("meta"):
        ours = BiQE(Config(**preset.model_config), ENTITIES, RELATIONS)
        bert = Bert(token_count(ENTITIES, RELATIONS), ours.config.max_position, 768, 12, 12, 3072)
    assert sum(weight.numel() for weight in bert.layers.parameters()) == 85_054_464  # BERT-base's twelve layers
    per_entity = ENTITIES  # the bias of the output; BERT has it in its vocabulary's size, too
    weights = [sum(weight.numel() for weight in model.parameters()) for model in (ours, bert)]
    assert weights[0] == weights[1] + per_entity


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["paper", "structure"])
def test_states_of_the_masks_alone_are_those_of_all_tokens(make_model, norm, positions):
    """And padding makes no difference: it is left out in evaluation, and computed along in training."""
    model = make_model(norm=norm, positions=positions, dropout=0.0)
    batch = model.encoder(QuerySet.of(QUERIES))
    assert batch.padding is not None
    found, gradients = [], []
    for training in (True, False):
        model.train(training)
        whole = model.hidden(batch)
        assert whole.shape == (*batch.tokens.shape, 16)
        for states in (whole.reshape(-1, 16)[batch.masks], model.hidden(batch, at_masks=True)):
            model.zero_grad()
            states.square().sum().backward(retain_graph=True)
            found.append(states.detach())
            gradients.append(model.layers[0].attention_in.weight.grad.clone())
    for states, gradient in zip(found[1:], gradients[1:], strict=True):
        torch.testing.assert_close(states, found[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-3, atol=1e-4)


def test_what_is_not_projected_is_not_computed(make_model, with_gold):
    """The last layer's feed-forward block sees the masks alone; outside of training the first one sees no padding."""
    model = make_model()
    batch = model.encoder(with_gold(QuerySet.of(QUERIES)))
    rows: dict[int, list[int]] = {0: [], len(model.layers) - 1: []}
    for number, seen in rows.items():
        model.layers[number].feed_in.register_forward_hook(lambda _, given, __, seen=seen: seen.append(len(given[0])))
    real = int((~batch.padding).sum())
    assert len(batch.masks) < real < batch.tokens.numel()
    model.train()
    model.loss(batch)
    model.eval()
    model.scores(batch)
    model.hidden(batch)
    assert rows[0] == [batch.tokens.numel(), real, real]
    assert rows[len(model.layers) - 1] == [len(batch.masks), len(batch.masks), real]


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_the_loss_is_the_cross_entropy_of_the_scores(make_model, with_gold, options):
    """Two roads to one number. Under mask_average=probability the paper's loss is a mean over masks."""
    model = make_model(**options)
    queries = with_gold(QuerySet.of(QUERIES))
    batch = model.encoder(queries)
    with torch.no_grad():
        at_masks = model.hidden(batch).reshape(-1, 16)[batch.masks]
        gold = batch.targets.gold[batch.mask_targets]
        if options["mask_average"] == "hidden":
            expected = -model.scores(batch).gather(1, batch.targets.gold[:, None]).mean()
        else:
            logits = model.head(at_masks) @ model.embed_entities.weight.T + model.entity_bias
            expected = torch.nn.functional.cross_entropy(logits, gold)
    torch.testing.assert_close(model.loss(batch).detach(), expected, rtol=1e-4, atol=1e-5)


def test_input_and_output_share_entity_embeddings(make_model):
    model = make_model()
    before = scores(model, QUERIES[0])
    with torch.no_grad():
        model.embed_entities.weight[4] += 1.0
    after = scores(model, QUERIES[0])
    assert (before[0, 4] - after[0, 4]).abs() > 1e-4, "the output projection is the input embedding"
    anchored = BoundQuery((4, TARGET), ((0, 1, 1),), (1,))
    with torch.no_grad():
        changed = scores(model, anchored)
        model.embed_entities.weight[4] -= 1.0
        assert (scores(model, anchored) - changed).abs().max() > 1e-4


@given(st.lists(st.sampled_from(range(len(QUERIES))), min_size=1, max_size=12))
def test_targets_come_in_the_order_of_queries_and_nodes(rows):
    torch.manual_seed(1)
    model = BiQE(Config(width=8, layers=1, heads=2, feed_forward=8), ENTITIES, RELATIONS).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    encoded = model.encode(QuerySet.of(QUERIES))
    with torch.inference_mode():
        found = model.scores(encoded.batch(np.array(rows)))
        expected = torch.cat([model.scores(encoded.batch(np.array([row]))) for row in rows])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"width": 10, "heads": 4}, "divide"),
        ({"dropout": 1.5}, r"\[0, 1\)"),
        ({"positions": "absolute"}, "paper or structure"),
        ({"layers": 0}, "at least 1"),
    ],
)
def test_bad_options_are_refused(options, complaint):
    with pytest.raises(InvalidOption, match=complaint):
        Config(**options)


@pytest.mark.parametrize("positions", ["paper", "structure"])
def test_without_future_context_what_comes_later_changes_nothing(make_model, positions):
    """Two paths that part after their first target: it is predicted alike only where the future is hidden."""
    paths = [BoundQuery((3, TARGET, TARGET), ((0, 0, 1), (1, relation, 2)), (1, 2)) for relation in (1, 2)]
    blind, seeing = (make_model(positions=positions, context=context) for context in ("past", "full"))
    first, second = (scores(blind, path) for path in paths)
    torch.testing.assert_close(first[0], second[0])
    assert not torch.allclose(first[1], second[1], atol=1e-4)
    first, second = (scores(seeing, path) for path in paths)
    assert not torch.allclose(first[0], second[0], atol=1e-4)
    together = scores(blind, *QUERIES)  # padded beside longer ones
    assert torch.isfinite(together).all()
    torch.testing.assert_close(together, torch.cat([scores(blind, query) for query in QUERIES]), rtol=1e-4, atol=1e-5)
