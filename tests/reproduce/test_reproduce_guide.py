"""The model that the guide writes passes the contract tests, as it stands on the page."""

from __future__ import annotations

import importlib.util
import re
import sys

import numpy as np
import pytest
import torch

from biqe.models import _catalogue
from biqe.query.bound import HIDDEN, TARGET, BoundQuery


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def stars(root, tmp_path, monkeypatch):
    page = (root / "docs" / "guides" / "add-a-model.md").read_text("utf-8")
    (tmp_path / "stars.py").write_text(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1])
    module = load("stars", tmp_path / "stars.py")
    real_names, real_import = _catalogue.names, _catalogue._import
    monkeypatch.setattr(_catalogue, "names", lambda: sorted([*real_names(), "stars"]))
    monkeypatch.setattr(_catalogue, "_import", lambda name: module if name == "stars" else real_import(name))
    yield module
    del sys.modules["stars"]


@pytest.fixture
def build(stars):
    def make(entities=20, relations=3, **options):
        torch.manual_seed(0)
        known = set(stars.Config.__dataclass_fields__)
        return stars.MODEL(stars.Config(**{k: v for k, v in options.items() if k in known}), entities, relations)

    return make


@pytest.mark.slow
def test_the_guides_model_keeps_the_contract(root, build, tmp_path):
    contract = load("contract_of_models", root / "tests" / "contracts" / "test_models.py")
    checks = {name: check for name, check in vars(contract).items() if name.startswith("test_")}
    assert len(checks) >= 6
    for name, check in checks.items():
        wanted = check.__code__.co_varnames[: check.__code__.co_argcount]
        assert set(wanted) <= {"build", "tmp_path"}, f"{name} wants more than the guide's test can give"
        check(**{"build": build, "tmp_path": tmp_path / name} | {}) if "tmp_path" in wanted else check(build)


def test_the_guides_model_is_listed_like_any_other(stars, capsys):
    from biqe.cli import main

    assert main(["models", "stars"]) == 0
    out = capsys.readouterr().out
    assert "Yang, Yih, He, Gao, Deng 2015" in out
    assert "1p 2i 3i; one target at a time" in out


def test_links_are_turned_towards_the_target(build):
    model = build().eval()
    forward = BoundQuery((3, TARGET), ((0, 1, 1),), (1,))
    turned = BoundQuery((TARGET, 3), ((0, 4, 1),), (0,))  # relation 4 is the inverse of relation 1
    from biqe.query.bound import QuerySet

    with torch.inference_mode():
        scores = model.scores(model.encoder(QuerySet.of([forward, turned])))
    assert torch.equal(scores[0], scores[1])
    assert np.isclose(float(scores[0].exp().sum()), 1.0)
    assert not model.supports(BoundQuery((3, HIDDEN, TARGET), ((0, 1, 1), (1, 0, 2)), (2,)))
