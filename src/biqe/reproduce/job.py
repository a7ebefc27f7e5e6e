"""A job: one recipe with one seed. What it does is fixed by its settings, and its name says which they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any

from biqe.errors import InvalidOption
from biqe.reproduce.recipe import SPLITS, Recipe, Table, budget, room_for_start

MOST_SEEDS = 100


@dataclass(frozen=True)
class Job:
    """What is to be done once."""

    recipe: Recipe
    seed: int
    quick: bool = False
    split: str = "valid"
    minutes: float | None = None
    """A training time in all other than the recipe's."""
    most: int | None = None
    """Queries of each shape that are ranked, at most; None ranks all."""

    @property
    def name(self) -> str:
        """``table/recipe/file``: where the result stands under results/, and the job's key in the queue."""
        parts = [f"seed-{self.seed}"]
        parts += ["quick"] if self.quick else []
        parts += [self.split] if self.split != "valid" else []
        parts += [f"{self.minutes:g}min"] if self.minutes is not None else []
        parts += [f"sample-{self.most}"] if self.most is not None else []
        return f"{self.recipe.table}/{self.recipe.name}/{'-'.join(parts)}"

    @property
    def trains(self) -> bool:
        """Whether a model is trained for it."""
        return self.recipe.model is not None

    @property
    def sample(self) -> int | None:
        """Queries of each shape that are ranked, at most."""
        quick = self.recipe.quick.sample if self.quick else None
        return min((most for most in (quick, self.most) if most is not None), default=None)

    @cached_property
    def model_config(self) -> dict[str, Any]:
        """Options of the model that differ from its preset's or its defaults."""
        return {**self.recipe.settings()[0], **(self.recipe.quick.model_config if self.quick else {})}

    @cached_property
    def train(self) -> dict[str, Any]:
        """Settings of the training, without the seed."""
        settings = self.recipe.settings()[1]
        for changes in (self.recipe.quick.train if self.quick else {}, {"minutes": self._minutes_of(self.recipe)}):
            if changes.get("minutes") is not None or changes.get("epochs") is not None:
                settings.pop("minutes", None)  # a run has one length
                settings.pop("epochs", None)
            settings |= {key: value for key, value in changes.items() if value is not None}
        if self.recipe.model is not None and self.recipe.start_from is None and settings.get("minutes") is not None:
            from biqe.training import links_first

            if links_first.starts_from_links(self.recipe.model):  # as ``biqe train`` does
                settings.setdefault("links_minutes", links_first.default_minutes(settings["minutes"]))
        return settings

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All that decides the figures, defaults included, apart from the seed; results with equal settings may be
        averaged."""
        options, train = self._resolved
        return {
            "benchmark": self.recipe.benchmark,
            "job": self.recipe.job,
            "model": self.recipe.model,
            "model_config": options,
            "train": train,
            "start_from": None if self.before is None else self.before.run_settings,
            **({"solving": dict(self.recipe.solving)} if self.recipe.solving else {}),
            "filters": list(self.recipe.filters),
            "split": self.split,
            "sample": self.sample,
            "quick": self.quick,
        }

    @cached_property
    def _resolved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """All options of the model and all settings of the training, as a run of today records them."""
        if self.recipe.model is None:
            return {}, {}
        from biqe.training import session

        room = {} if self.before is None else room_for_start(self.recipe, self.before.model_config)
        options = _options(self.recipe.model, json.dumps({**room, **self.model_config}))
        train = asdict(session.settings(self.recipe.model, **self.train))
        del train["seed"]
        return _plain(options), _plain(train)

    @property
    def budget(self) -> str:
        """How long is trained in all, that of a model it starts from included, in words; '' where nothing is."""
        if not self.trains:
            return ""
        parts = [job.train.get("minutes") for job in (self, self.before) if job is not None]
        minutes = [part for part in parts if part is not None]
        return budget({"minutes": round(sum(minutes), 6)} if len(minutes) == len(parts) else self.train)

    @property
    def digest(self) -> str:
        """Eight hex digits over the settings."""
        return digest(self.settings)

    @cached_property
    def before(self) -> Job | None:
        """The training that this one starts from."""
        first = self.recipe.start_from
        return None if first is None else Job(first, self.seed, self.quick, minutes=self._minutes_of(first))

    def _minutes_of(self, part: Recipe) -> float | None:
        """Of the user's minutes, the share of the recipe or of the one that it starts from: minutes are compared in
        all. Shares are those of the recipes' own minutes; what is trained for epochs has none."""
        first = self.recipe.start_from
        if self.minutes is None or first is None:
            return self.minutes
        own, before = (one.settings()[1].get("minutes") for one in (self.recipe, first))
        if own is None or before is None:
            return self.minutes if part is self.recipe else None
        return round(self.minutes * (own if part is self.recipe else before) / (own + before), 6)

    @property
    def run_settings(self) -> dict[str, Any]:
        """What decides the trained model, apart from the seed."""
        return {key: self.settings[key] for key in ("benchmark", "model", "model_config", "train", "start_from")}

    @property
    def run_name(self) -> str:
        """Folder of the training run. Jobs that want the same training share it, whatever they do afterwards."""
        quick = "-quick" if self.quick else ""
        return f"{self.recipe.benchmark}-{self.recipe.model}-{digest(self.run_settings)}-seed-{self.seed}{quick}"


@lru_cache(maxsize=256)  # jobs of one recipe differ in their seeds, and those of a table often in nothing else
def _options(model: str, given: str) -> dict[str, Any]:
    """All options of a model, of which some are given as JSON."""
    from biqe.models import _catalogue

    return asdict(_catalogue.build(model, json.loads(given), 2, 1).config)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """As read again from JSON: lists, no tuples."""
    return json.loads(json.dumps(settings))  # type: ignore[no-any-return]


def digest(settings: Mapping[str, Any]) -> str:
    """Eight hex digits over settings, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def expand(
    table: Table,
    *,
    seeds: int = 1,
    only: str | None = None,
    quick: bool = False,
    split: str = "valid",
    minutes: float | None = None,
    sample: int | None = None,
) -> list[Job]:
    """The jobs of a table: each recipe, or ``only`` one, with seeds 0, 1, ...; all recipes of a seed together, so
    that an interrupted queue has whole columns first. What is not trained is done once."""
    if not 1 <= seeds <= MOST_SEEDS:
        raise InvalidOption(f"seeds must be between 1 and {MOST_SEEDS}. Got {seeds}")
    if split not in SPLITS:
        raise InvalidOption(f"split must be one of {', '.join(SPLITS)}. Got {split!r}")
    if minutes is not None and not minutes > 0:
        raise InvalidOption(f"minutes must be above 0. Got {minutes:g}")
    if sample is not None and sample < 1:
        raise InvalidOption(f"sample must be at least 1. Got {sample}")
    recipes = table.recipes if only is None else (table.recipe(only),)
    return [
        Job(recipe, seed, quick, **_choices(recipe, split, minutes, sample))
        for seed in range(seeds)
        for recipe in recipes
        if seed == 0 or recipe.model is not None
    ]


def _choices(recipe: Recipe, split: str, minutes: float | None, sample: int | None) -> dict[str, Any]:
    """Those of the user's choices that the recipe's job knows."""
    if recipe.job == "statistics":  # counts every split whole
        return {}
    return {"split": split, "most": sample} | ({} if recipe.model is None else {"minutes": minutes})
