"""Tables and their recipes, read from TOML and checked: every key is known, every value of its type.

recipes/<table>/table.toml      title, rows and columns, order of the recipes, what a quick run changes
recipes/<table>/<recipe>.toml   benchmark, model, settings, and the published figures with their source
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biqe.errors import InvalidOption, UnknownName, UnreadableFile
from biqe.graph.whole_folder import MAX_MANIFEST_BYTES, read_regular
from biqe.training.config import TrainConfig

FOLDER = Path(__file__).parent / "recipes"
TABLE_FILE = "table.toml"
FORMATS = ("share", "percent", "number", "count")
"""How a column prints: 0.246; 91.00 (ours are stored as shares); 1.86; 48,865."""
JOBS = ("rank", "one-at-a-time", "attention", "exact", "statistics")
"""What is done for a recipe; see work.py."""
UNTRAINED = ("exact", "statistics")
"""Those for which no model is trained."""
SPLITS = ("valid", "test")

Figures = Mapping[str, Mapping[str, float]]
"""Group of queries or targets, then metric, then value."""


@dataclass(frozen=True)
class Column:
    """One column of figures."""

    metric: str
    label: str
    group: str | None = None
    """The group that the figures are of; None where each row names its own."""
    format: str = "share"


@dataclass(frozen=True)
class Row:
    """One line of figures for each recipe, where a table has several."""

    group: str
    label: str


@dataclass(frozen=True)
class Published:
    """What a paper reports."""

    source: str
    figures: Figures
    split: str = "test"
    taken_from: str = ""
    """The paper that these figures were copied from, where they are not the source's own."""
    benchmark: str | None = None
    """The benchmark that the figures are of, where the recipe runs another one."""


@dataclass(frozen=True)
class Changes:
    """What a quick run sets otherwise."""

    model_config: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    sample: int | None = None
    """Queries of each shape that are ranked, at most; of the whole set where it has no shapes."""


@dataclass(frozen=True)
class Recipe:
    """How one row of a table is made."""

    table: str
    name: str
    """The file's stem."""
    label: str
    benchmark: str
    job: str = "rank"
    model: str | None = None
    """A model or one of its variants, by name."""
    preset: str | None = None
    """Settings of biqe.training.presets that the recipe starts from; its own are laid over them."""
    model_config: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    solving: Mapping[str, Any] = field(default_factory=dict)
    """Options of the model that are changed once it is trained; recipes that differ in these alone share a run."""
    filters: tuple[str, ...] = ("complete",)
    """Protocol cq: whose true values are filtered out; each gives a group of figures."""
    optional: bool = False
    """Run only where the benchmark's files are at hand."""
    start_from: Recipe | None = None
    """The link predictor whose embeddings the model begins with; it is trained first, with the same seed."""
    headline: tuple[str, str] | None = None
    """Group and metric of the figure that stands for it in overviews, where that is not the table's."""
    note: str = ""
    departs: str = ""
    """What is not as in the paper that the model comes from; '' where everything is."""
    published: Published | None = None
    quick: Changes = field(default_factory=Changes)

    @property
    def budget(self) -> str:
        """How long it trains, in words; '' where nothing is trained."""
        return budget(self.train) if self.model is not None else ""

    def settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Options of the model and settings of its training: those of the preset, and the recipe's own over them."""
        if self.preset is None:
            return dict(self.model_config), dict(self.train)
        from biqe.training.presets import PRESETS  # with training, so not before a job needs it

        if self.preset not in PRESETS:
            raise UnknownName(
                f"recipe {self.table}/{self.name} starts from preset {self.preset!r}; there are {', '.join(PRESETS)}",
                hint=_nearest(self.preset, PRESETS),
            )
        preset = PRESETS[self.preset]
        return {**preset.model_config, **self.model_config}, {**preset.train, **self.train}


@dataclass(frozen=True)
class Table:
    """A table of the paper, or one like it."""

    name: str
    title: str
    columns: tuple[Column, ...]
    headline: tuple[str, str]
    """Group and metric of the one figure that stands for a row of the table in overviews."""
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    recipes: tuple[Recipe, ...] = ()
    split: str = "test"
    """Whose questions are asked unless the user says otherwise."""

    def recipe(self, name: str) -> Recipe:
        """The recipe called ``name``."""
        for recipe in self.recipes:
            if recipe.name == name:
                return recipe
        known = [recipe.name for recipe in self.recipes]
        raise UnknownName(
            f"table {self.name} has no recipe {name!r}; it has {', '.join(known)}", hint=_nearest(name, known)
        )

    @property
    def headline_column(self) -> Column:
        """The column of the headline figure."""
        group, metric = self.headline
        return next(c for c in self.columns if c.metric == metric and c.group in (None, group))


def budget(train: Mapping[str, Any]) -> str:
    """Length of a training in words.

    >>> budget({"minutes": 30}), budget({"epochs": 2})
    ('30 min', '2 epochs')
    """
    if train.get("minutes") is not None:
        return f"{train['minutes']:g} min"
    return f"{train['epochs']:g} epochs" if train.get("epochs") is not None else ""


def names(folder: Path | None = None) -> list[str]:
    """Names of all tables, in the order of the paper where its table.toml gives one."""
    folder = folder or FOLDER
    found = [path.parent.name for path in folder.glob(f"*/{TABLE_FILE}")]
    return sorted(found, key=lambda name: (_order(folder, name), name))


def load(name: str, folder: Path | None = None) -> Table:
    """The table called ``name`` with its recipes."""
    folder = folder or FOLDER
    if name not in names(folder):
        raise UnknownName(
            f"there is no table {name!r}; there are {', '.join(names(folder))}", hint=_nearest(name, names(folder))
        )
    path = folder / name / TABLE_FILE
    data = _read(path)
    _check(path, "", data, _TABLE, required=("title", "columns", "headline", "recipes"))
    columns = tuple(_column(path, item) for item in data["columns"])
    for item in data.get("rows", []):
        _check(path, "rows", item, {"group": str, "label": str}, required=("group", "label"))
    headline = _headline(path, data["headline"])
    # A leading underscore marks a recipe that others start from and that has no row in the table.
    files = {recipe.stem for recipe in path.parent.glob("[!_]*.toml")} - {path.stem}
    if files != set(data["recipes"]):
        odd = ", ".join(sorted(files ^ set(data["recipes"])))
        raise UnreadableFile(f"{path}: 'recipes' must list the recipe files beside it. They differ in {odd}")
    if data.get("split", SPLITS[0]) not in SPLITS:
        raise UnreadableFile(f"{path}: 'split' must be one of {', '.join(SPLITS)}. Got {data['split']!r}")
    shared = _changes(path, data.get("quick", {}))
    table = Table(
        name=name,
        title=data["title"],
        columns=columns,
        headline=headline,
        rows=tuple(Row(**item) for item in data.get("rows", [])),
        notes=tuple(data.get("notes", ())),
        recipes=tuple(_recipe(folder / name / f"{recipe}.toml", name, shared) for recipe in data["recipes"]),
        split=data.get("split", Table.split),
    )
    if not any(c.metric == headline[1] and c.group in (None, headline[0]) for c in columns):
        raise UnreadableFile(f"{path}: 'headline' names no column of the table")
    return table


_TABLE: dict[str, type] = {"title": str, "order": int, "split": str} | dict.fromkeys(
    ("columns", "rows", "notes", "recipes"), list
)
_TABLE |= dict.fromkeys(("headline", "quick"), dict)
_COLUMN = dict.fromkeys(("metric", "label", "group", "format"), str)
_RECIPE: dict[str, type] = dict.fromkeys(("like", "label", "benchmark", "job", "model", "preset", "start_from"), str)
_RECIPE |= {"note": str, "departs": str}
_RECIPE |= dict.fromkeys(("model_config", "train", "solving", "published", "quick"), dict)
_RECIPE |= {"filters": list, "optional": bool, "headline": dict}
_PUBLISHED = dict.fromkeys(("source", "split", "taken_from", "benchmark"), str) | {"figures": dict}
_CHANGES = {"model_config": dict, "train": dict, "sample": int}
# Keys that each part of a file may have, and the type of their values.

_ALIKE: tuple[str, ...] = ("benchmark", "model", "preset", "model_config", "train", "solving", "filters")
_ALIKE += ("start_from", "quick", "departs")
"""What a recipe takes over from the one that it is ``like``: how the model is made, not how its row is shown."""


def _like(path: Path, data: dict[str, Any]) -> tuple[dict[str, Any], Path]:
    """The recipe with what it takes over, its own sections laid over those of the other; and the other's file."""
    table, _, name = data["like"].partition("/")
    other = path.parents[1] / table / f"{name}.toml"
    if not name or other == path or not other.is_file():
        raise UnreadableFile(f"{path}: 'like' must be TABLE/RECIPE of another recipe. Got {data['like']!r}")
    base = _read(other)
    _check(other, "", base, _RECIPE)
    if "like" in base:
        raise UnreadableFile(f"{path}: 'like' must name a recipe that says all itself. {data['like']!r} does not")
    merged = {key: base[key] for key in _ALIKE if key in base} | data
    for key in ("model_config", "train", "solving"):
        if key in base and key in data:
            merged[key] = {**base[key], **data[key]}
    return merged, other


def _recipe(path: Path, table: str, shared: Changes) -> Recipe:
    data = _read(path)
    _check(path, "", data, _RECIPE)
    beside = path
    if "like" in data:
        own_start = "start_from" in data
        data, other = _like(path, data)
        beside = path if own_start else other
    _check(path, "", data, _RECIPE, required=("benchmark",))
    job = data.get("job", "rank")
    if job not in JOBS:
        raise UnreadableFile(f"{path}: 'job' must be one of {', '.join(JOBS)}. Got {job!r}", hint=_nearest(job, JOBS))
    model, train = data.get("model"), data.get("train", {})
    if (model is None) != (job in UNTRAINED):
        raise UnreadableFile(f"{path}: a recipe names its 'model', unless its job is one of {', '.join(UNTRAINED)}")
    quick = _changes(path, data.get("quick", {}))
    _check_train(path, "train", train)
    if model is not None and not budget(train):
        raise UnreadableFile(f"{path}: [train] must say 'minutes' or 'epochs'")
    if "seed" in train:
        raise UnreadableFile(f"{path}: [train] must not set 'seed': each job brings its own")
    if model is not None:
        # What else the machine did must not decide a comparison.
        train = {"clock": "processor", **train}
    return Recipe(
        table=table,
        name=path.stem,
        label=data.get("label", path.stem),
        benchmark=data["benchmark"],
        job=job,
        model=model,
        preset=data.get("preset"),
        model_config=data.get("model_config", {}),
        train=train,
        solving=data.get("solving", {}),
        filters=tuple(data.get("filters") or ("complete",)),
        optional=data.get("optional", False),
        start_from=_start(beside, table, shared, data["start_from"]) if "start_from" in data else None,
        headline=_headline(path, data["headline"]) if "headline" in data else None,
        note=data.get("note", ""),
        departs=data.get("departs", ""),
        published=_published(path, data["published"]) if "published" in data else None,
        quick=Changes(
            {**shared.model_config, **quick.model_config},
            {**shared.train, **quick.train},
            quick.sample if quick.sample is not None else shared.sample,
        ),
    )


def _start(path: Path, table: str, shared: Changes, name: str) -> Recipe:
    other = path.with_name(f"{name}.toml")
    if name == path.stem or not other.is_file():
        raise UnreadableFile(f"{path}: 'start_from' must be another recipe beside it. Got {name!r}")
    found = _recipe(other, table, shared)
    if found.start_from is not None or found.model is None:
        raise UnreadableFile(f"{path}: 'start_from' must train a model from nothing. {name!r} does not")
    return found


def _published(path: Path, data: Mapping[str, Any]) -> Published:
    _check(path, "published", data, _PUBLISHED, required=("source", "figures"))
    for group, figures in data["figures"].items():
        if not isinstance(figures, dict) or not all(
            isinstance(value, (int, float)) and not isinstance(value, bool) for value in figures.values()
        ):
            raise UnreadableFile(f"{path}: published.figures.{group} must map metrics to numbers. Got {figures!r}")
    return Published(**data)


def _changes(path: Path, data: Mapping[str, Any]) -> Changes:
    _check(path, "quick", data, _CHANGES)
    _check_train(path, "quick.train", data.get("train", {}))
    return Changes(**data)


def _headline(path: Path, data: Any) -> tuple[str, str]:
    _check(path, "headline", data, {"group": str, "metric": str}, required=("group", "metric"))
    return data["group"], data["metric"]


def _column(path: Path, data: Any) -> Column:
    _check(path, "columns", data, _COLUMN, required=("metric", "label"))
    if data.get("format", "share") not in FORMATS:
        raise UnreadableFile(f"{path}: a column's 'format' must be one of {', '.join(FORMATS)}. Got {data['format']!r}")
    return Column(**data)


def _check_train(path: Path, place: str, data: Mapping[str, Any]) -> None:
    known = {item.name for item in dataclasses.fields(TrainConfig)}
    for key in data:
        if key not in known:
            raise UnreadableFile(
                f"{path}: [{place}] has no setting {key!r}; it has {', '.join(sorted(known))}",
                hint=_nearest(key, known),
            )


def _check(path: Path, place: str, data: Any, known: Mapping[str, type], *, required: tuple[str, ...] = ()) -> None:
    """Refuse keys that are not known, values of another type, and missing keys."""
    where = f"{path}: [{place}]" if place else f"{path}:"
    if not isinstance(data, dict):
        raise UnreadableFile(f"{where} must be a table. Got {data!r}")
    for key, value in data.items():
        if key not in known:
            raise UnreadableFile(f"{where} has no key {key!r}; known are {', '.join(known)}", hint=_nearest(key, known))
        kind = known[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise UnreadableFile(f"{where} {key!r} must be of type {kind.__name__}. Got {value!r}")
    missing = [key for key in required if key not in data]
    if missing:
        raise UnreadableFile(f"{where} lacks {', '.join(map(repr, missing))}")


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_regular(path, MAX_MANIFEST_BYTES).decode())
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # of TOML, or of UTF-8
        raise UnreadableFile(f"{path} is not TOML: {error}") from error


def _order(folder: Path, name: str) -> int:
    order = _read(folder / name / TABLE_FILE).get("order", 99)
    return order if isinstance(order, int) else 99


def _nearest(word: str, known: Any) -> str | None:
    near = difflib.get_close_matches(word, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else None


def room_for_start(recipe: Recipe, first: Mapping[str, Any]) -> dict[str, Any]:
    """Options that make room in the recipe's model for what it starts from, whose own options are ``first``."""
    from biqe.models import _catalogue
    from biqe.models._contract import StartsFromLinks

    if recipe.model is None or recipe.start_from is None:
        return {}
    predictor = _catalogue.build(str(recipe.start_from.model), dict(first), 2, 1)
    kind = _catalogue.class_of(recipe.model)
    if not issubclass(kind, StartsFromLinks):
        raise InvalidOption(f"{recipe.model} cannot start from another model's weights", hint="leave out 'start_from'")
    return kind.options_from(predictor)


def check_options(recipe: Recipe, model_config: Mapping[str, Any]) -> None:
    """Refuse options that the recipe's model does not have or does not allow, before anything is trained."""
    from biqe.models import _catalogue
    from biqe.models._contract import SolvesOtherwise

    if recipe.model is not None:
        room = {} if recipe.start_from is None else room_for_start(recipe, recipe.start_from.model_config)
        built = _catalogue.build(recipe.model, {**room, **model_config}, 2, 1)
        if recipe.solving and not isinstance(built, SolvesOtherwise):
            raise InvalidOption(f"{recipe.model} has no options of solving", hint="leave out the table 'solving'")
        if recipe.solving:
            built.solving(**recipe.solving)
