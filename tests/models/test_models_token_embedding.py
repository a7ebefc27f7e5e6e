"""Entities in a table of their own: the same numbers as one table gave, and old files are still read."""

from __future__ import annotations

import json

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from biqe import atlas
from biqe.models import store
from biqe.models._token_embedding import embed, parted
from biqe.models.biqe import BiQE, Config
from biqe.query.queryset import QuerySet
from biqe.query.token_table import FIRST_ENTITY, token_count

from .conftest import ENTITIES, QUERIES, RELATIONS


def one_table(model: BiQE) -> torch.Tensor:
    others = model.embed_others.weight
    return torch.cat([others[:FIRST_ENTITY], model.embed_entities.weight, others[FIRST_ENTITY:]])


def test_the_same_rows_as_one_table_and_the_same_gradients(make_model):
    model = make_model()
    tokens = torch.randint(token_count(ENTITIES, RELATIONS), (7, 11))
    table = one_table(model).detach().requires_grad_()
    expected, found = (
        torch.nn.functional.embedding(tokens, table),
        embed(tokens, model.embed_entities, model.embed_others),
    )
    assert torch.equal(expected, found)
    weights = torch.randn_like(found)
    (expected * weights).sum().backward()
    (found * weights).sum().backward()
    parts = parted({"embed_tokens.weight": table.grad}, ENTITIES)
    assert torch.equal(parts["embed_entities.weight"], model.embed_entities.weight.grad)
    assert torch.equal(parts["embed_others.weight"], model.embed_others.weight.grad)


def test_a_seed_gives_the_weights_that_it_gave_with_one_table():
    config = Config(width=8, layers=1, heads=2, feed_forward=8)
    torch.manual_seed(3)
    model = BiQE(config, ENTITIES, RELATIONS)
    torch.manual_seed(3)
    size = token_count(ENTITIES, RELATIONS)
    torch.nn.Embedding(size, 8)  # layers draw when they are made, and again when the model initialises them
    for module in (torch.nn.Embedding(32, 8), torch.nn.Linear(8, 24), torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)):
        del module
    torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), torch.nn.Embedding(model.relative_bias.num_embeddings, 2)
    assert torch.equal(one_table(model), torch.empty(size, 8).normal_(std=0.02))


def test_a_model_folder_of_an_earlier_version_is_read(make_model, tmp_path):
    from biqe.graph.vocabulary import Vocabulary

    model = make_model()
    names = Vocabulary([f"e{i}" for i in range(ENTITIES)], [f"r{i}" for i in range(RELATIONS)])
    store.save(model, tmp_path, vocabulary=names, graph_fingerprint="0")
    path = tmp_path / "weights.safetensors"
    tensors = {
        name: t for name, t in load_file(path).items() if name.split(".")[0] not in ("embed_entities", "embed_others")
    }
    save_file({**tensors, "embed_tokens.weight": one_table(model).detach()}, path)
    read = store.load(tmp_path).model
    batch = model.encoder(QuerySet.of(QUERIES))
    with torch.inference_mode():
        assert torch.equal(model.scores(batch), read.scores(batch))


def test_the_shipped_model_is_read():
    folder = atlas.model_path()
    loaded = store.load(folder)
    with safe_open(folder / "weights.safetensors", "pt") as file:
        if "embed_tokens.weight" in file.keys():  # noqa: SIM118, safe_open is no mapping
            assert torch.equal(file.get_tensor("embed_tokens.weight").float(), one_table(loaded.model))
    sizes = json.loads((folder / "manifest.json").read_text())
    assert loaded.model.embed_entities.num_embeddings == sizes["entities"]
    assert loaded.model.embed_others.num_embeddings == FIRST_ENTITY + 2 * sizes["relations"]
