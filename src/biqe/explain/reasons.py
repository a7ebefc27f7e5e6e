"""What speaks for a missing link, and against it: in one sentence, and then in detail.

rules      stored paths between its ends, and how often such paths meant such a link on this graph
kinds      how its ends fit the relation, judged by their other links
rivals     what else was considered for either end, with the same probabilities that ``ask`` lists
embedding  the rank that ComplEx alone gives each end
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from biqe.graph import words
from biqe.graph.vocabulary import Vocabulary
from biqe.predict.evidence import IdLink

if TYPE_CHECKING:
    from biqe.links.kinds import Kinds, Traits
    from biqe.links.probability import LinkProbability
    from biqe.links.rules import Fired
    from biqe.predict.predictor import Predictor

RULES = 3
"""Rules that are told of a link, the most confident ones."""
NAMED = 3
"""Entities in the middle of a path that are named, and stored answers beside rivals."""
RIVALS = 4
"""Rivals that are told for each end."""
WEAK = 0.1
"""Rules of less than this share of the best one's confidence are not told."""
SPEAKS = 0.25
"""A rule is the reason for a link if its confidence is at least this share of the link's probability."""
LIKELY = 0.1
"""Below this probability a sentence says what speaks against a link."""
LINKS = 3
"""Missing links whose reasons stand in the sentence of a row."""


@dataclass(frozen=True)
class RuleReason:
    """A rule that speaks for the link."""

    text: str
    hits: int
    """Pairs of entities that such paths join and that have the link, ..."""
    pairs: int
    """... of so many that such paths join."""
    through: tuple[str, ...]
    """Entities in the middle of the paths."""


@dataclass(frozen=True)
class KindReason:
    """Something about one end of the link that speaks for it or against it."""

    text: str
    speaks_for: bool


@dataclass(frozen=True)
class Rival:
    """Another entity for one end of the link."""

    entity: str
    probability: float
    is_stored: bool


@dataclass(frozen=True)
class Place:
    """One end of the link, and who else might stand there."""

    pattern: str
    """The link with that end left open."""
    entity: str
    rank: int
    """Of the entity among all that the graph does not have there, by probability."""
    of: int
    stored: int
    """Entities that the graph has there."""
    rivals: tuple[Rival, ...]
    """The likeliest others, then some of the stored ones."""
    embedding_rank: int | None
    """The rank by ComplEx alone; None for what came after training."""


@dataclass(frozen=True)
class Reason:
    """Why one missing link is likely or not."""

    link: str
    """Subject, relation and object as they are shown."""
    probability: float | None
    sentence: str
    rules: tuple[RuleReason, ...] = ()
    kinds: tuple[KindReason, ...] = ()
    places: tuple[Place, ...] = ()


def why(predictor: Predictor | None, vocabulary: Vocabulary, missing: Mapping[IdLink, float | None]) -> str:
    """One sentence on why a row is predicted: what speaks for its missing links, given with their probabilities. It
    asks neither for rivals nor for attention, so it costs little. '' where there is nothing to say."""
    told = [sentence(predictor, vocabulary, link, chance) for link, chance in list(missing.items())[:LINKS]]
    if len(told) < 2:
        return "".join(told)
    numbered = ", ".join(f"({number}) {each}" for number, each in enumerate(told, 1))
    more = len(missing) - LINKS
    return numbered if more <= 0 else f"{numbered}, and {more} more missing link{'s' if more > 1 else ''}"


def sentence(predictor: Predictor | None, vocabulary: Vocabulary, link: IdLink, chance: float | None) -> str:
    """What speaks for one link, in a sentence without its full stop."""
    fact = stated(vocabulary, link)
    if not link.is_closed or predictor is None:
        return f"the graph lacks “{fact}”, and nothing was asked about it"
    if predictor.links is None:
        return f"“{fact}” was judged by {predictor.name} alone, which has no rules to show"
    told = _rules(predictor.links, vocabulary, link)
    if told and told[0][0].confidence >= SPEAKS * (chance or 0.0):
        return told[0][1].text
    kinds = list(_kinds(predictor.links, vocabulary, link))
    # Of an unlikely link, what speaks against it.
    is_likely = chance is None or chance >= LIKELY
    parts = [f"no strong rule speaks for “{fact}”"]
    ranks = _embedding_ranks(predictor.links, link)
    if ranks is not None:
        (rank, of), end = min(zip(ranks, (link.object, link.subject), strict=True))
        parts.append(f"the embedding ranks {named(vocabulary, end)} {ordinal(rank)} of {of:,}")
    parts += [each.text for each in sorted(kinds, key=lambda each: each.speaks_for is not is_likely)][:1]
    return "; ".join(parts)


def reasons(predictor: Predictor, vocabulary: Vocabulary, missing: Mapping[IdLink, float | None]) -> list[Reason]:
    """Everything that speaks for and against each missing link."""
    found = []
    for link, chance in missing.items():
        links = predictor.links
        rules: tuple[RuleReason, ...] = ()
        kinds: tuple[KindReason, ...] = ()
        places: tuple[Place, ...] = ()
        if links is not None and link.is_closed:
            every = _rules(links, vocabulary, link)[:RULES]
            rules = tuple(told for fired, told in every if fired.confidence >= WEAK * every[0][0].confidence)
            kinds = tuple(_kinds(links, vocabulary, link))
            places = tuple(_places(links, vocabulary, link))
        told = sentence(predictor, vocabulary, link, chance)
        found.append(Reason(stated(vocabulary, link), chance, told, rules, kinds, places))
    return found


# Rules


def _rules(links: LinkProbability, vocabulary: Vocabulary, link: IdLink) -> list[tuple[Fired, RuleReason]]:
    """Rules in words, the most confident first; a path over a symmetric relation is told once, forwards."""
    if link.subject == link.object:
        return []  # rules are counted on links between two entities
    count = len(vocabulary.relations)
    fired = sorted(links.reasons(*link), key=lambda each: (-each.confidence, each.path[0] >= count, each.rule))
    told: dict[tuple[object, ...], tuple[Fired, RuleReason]] = {}
    for each in fired:
        key = tuple(direction % count for direction in each.path), each.through, each.constant, each.of_object
        if key not in told:
            through = tuple(named(vocabulary, entity) for entity in each.through)
            told[key] = each, RuleReason(_path(vocabulary, link, each), each.hits, each.pairs, through)
    return list(told.values())


def _path(vocabulary: Vocabulary, link: IdLink, fired: Fired) -> str:
    share = words.percent(fired.hits / max(1, fired.pairs))
    asked = said(vocabulary, link.relation)
    cases = f"then “{asked}” holds in {share} of 100 cases ({fired.hits:,} of {fired.pairs:,})"
    subject, object_ = named(vocabulary, link.subject), named(vocabulary, link.object)
    if fired.constant is not None:
        # "F1 country Kenya: so 93 of 100 such have language Swahili"
        end, other = (object_, subject) if fired.of_object else (subject, object_)
        held = _step(vocabulary, end, fired.path[0], named(vocabulary, fired.constant))
        own = f"{other} {asked}" if fired.of_object else f"{asked} {other}"
        return f"{held}: {share} of 100 like it have “{own}” ({fired.hits:,} of {fired.pairs:,})"
    if len(fired.path) == 1:
        return f"{_step(vocabulary, subject, fired.path[0], object_)}: {cases}"
    first, second = fired.path
    count = len(vocabulary.relations)
    names = [named(vocabulary, entity) for entity in fired.through]
    start = _step(vocabulary, subject, first, _listed(names), is_one=len(names) == 1)
    relation = said(vocabulary, second % count)
    if second >= count:
        return f"{start}, and {object_} {relation} {names[0] if len(names) == 1 else 'each of them'}: {cases}"
    if len(names) == 1:
        return f"{start}, and {names[0]} {relation} {object_}: {cases}"
    # "Bonn near Cologne and Koblenz, each located on Rhine": that works where the names come last.
    return f"{start}, {'each' if first < count else 'and each of them'} {relation} {object_}: {cases}"


def _step(vocabulary: Vocabulary, head: str, direction: int, tails: str, *, is_one: bool = True) -> str:
    """Links in a direction, as the graph has them."""
    count = len(vocabulary.relations)
    relation = said(vocabulary, direction % count)
    return (
        f"{head} {relation} {tails}" if direction < count else f"{tails} {'' if is_one else 'each '}{relation} {head}"
    )


def _listed(names: Sequence[str]) -> str:
    if len(names) > NAMED:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED:,} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


# Kinds


def _kinds(links: LinkProbability, vocabulary: Vocabulary, link: IdLink) -> Iterator[KindReason]:
    """How both ends fit: what speaks for the link first, then what speaks against it."""
    kinds, relation = links.knowledge.kinds, link.relation
    if relation >= kinds.relation_count:
        return  # newer than the counts
    found = []
    for entity, direction in ((link.subject, relation), (link.object, relation + kinds.relation_count)):
        fit = kind_fit(kinds, links.traits, entity, direction)
        name, is_object = named(vocabulary, entity), direction != relation
        if fit.typical:
            such = _sharing(vocabulary, relation, is_object)
            text = f"{name} {_shares(fit.shared, fit.typical)} that most {such} have"
            found.append(KindReason(text, 2 * fit.shared >= fit.typical))
        for trait, speaks_for in ((fit.best, True), (fit.worst, False)):
            if trait is not None:
                text = _counted(vocabulary, kinds.relation_count, trait, name, relation, is_object)
                found.append(KindReason(text, speaks_for))
    if link.subject == link.object and not links.knowledge.has_loops[relation]:
        found.append(KindReason(f"no entity has “{said(vocabulary, relation)}” to itself", False))
    yield from sorted(found, key=lambda each: not each.speaks_for)


def _shares(shared: int, typical: int) -> str:
    """How many traits are shared, in words.

    >>> [_shares(*counts) for counts in ((2, 3), (3, 3), (2, 2), (0, 3), (0, 1))]
    ['has 2 of the 3 traits', 'has all 3 traits', 'has both traits', 'has none of the 3 traits', 'lacks the trait']
    """
    if typical == 1:
        return "has the trait" if shared else "lacks the trait"
    if shared == typical:
        return "has both traits" if typical == 2 else f"has all {typical} traits"
    return f"has {shared or 'none'} of the {typical} traits"


def _counted(vocabulary: Vocabulary, count: int, trait: TraitCount, name: str, relation: int, is_object: bool) -> str:
    sharing = _sharing(vocabulary, trait.direction % count, trait.direction >= count, trait.tail)
    is_all = trait.with_links == trait.entities > 1
    number = "all" if is_all else f"{trait.with_links:,}" if trait.with_links else "none"
    is_one = trait.with_links < 2
    link = said(vocabulary, relation)
    if is_object:
        are = f"is an object of “{link}”" if is_one else f"are objects of “{link}”"
    else:
        are = f"{'has' if is_one else 'have'} “{link}”"
    return f"of {trait.entities:,} other {sharing}, like {name}, {number} {are}"


def _sharing(vocabulary: Vocabulary, relation: int, is_object: bool, end: int | None = None) -> str:
    """Who has such a link, to or from this entity if one is given."""
    name, other = said(vocabulary, relation), "" if end is None else named(vocabulary, end)
    return f"objects of “{f'{other} {name}'.strip()}”" if is_object else f"entities with “{f'{name} {other}'.strip()}”"


# Rivals


def _places(links: LinkProbability, vocabulary: Vocabulary, link: IdLink) -> Iterator[Place]:
    """Both ends of the link, with who else might stand there; the object first."""
    import torch  # here, because graphs without a model are explained without it

    count = len(vocabulary.relations)
    subject, relation, object_ = link
    (chance,) = np.exp(links.of(np.array([subject]), np.array([relation]), np.array([object_])))
    heads, directions = np.array([subject, object_]), np.array([relation, relation + count])
    with torch.inference_mode():  # as where questions are answered: rows are remembered from one to the other
        rows = links.to_all(torch.from_numpy(heads), torch.from_numpy(directions)).exp().numpy()
    ranks = _embedding_ranks(links, link)
    fact = [named(vocabulary, subject), said(vocabulary, relation), named(vocabulary, object_)]
    for number, (entity, head, direction) in enumerate(
        zip((object_, subject), heads.tolist(), directions.tolist(), strict=True)
    ):
        stored = links.walks.of_head(head, direction)
        row = rows[number].copy()
        row[stored] = -1.0
        row[entity] = -1.0
        likeliest = np.argsort(-row, kind="stable")[:RIVALS].tolist()
        rivals = [Rival(named(vocabulary, other), float(row[other]), False) for other in likeliest if row[other] >= 0]
        rivals += [Rival(named(vocabulary, other), 1.0, True) for other in stored[:NAMED].tolist()]
        pattern = " ".join([*fact[:2], "…"] if number == 0 else ["…", *fact[1:]])
        yield Place(
            pattern,
            named(vocabulary, entity),
            1 + int((row > chance * (1 + 1e-6)).sum()),
            len(row) - len(stored),
            len(stored),
            tuple(rivals),
            None if ranks is None else ranks[number][0],
        )


def _embedding_ranks(links: LinkProbability, link: IdLink) -> list[tuple[int, int]] | None:
    """What ComplEx alone says: the rank of the object and of the subject, each among so many that are not stored; None
    where it does not know the link's parts."""
    import torch

    complex_, kinds = links.predictor, links.knowledge.kinds
    known = max(link.subject, link.object) < kinds.entity_count and link.relation < kinds.relation_count
    if complex_ is None or not known:
        return None
    found = []
    count = links.graph.relation_count
    with torch.no_grad():
        for head, own, back in ((link.subject, link.object, False), (link.object, link.subject, True)):
            direction = link.relation + kinds.relation_count * back
            scores = complex_.scores(torch.tensor([head]), torch.tensor([direction]))[0].numpy().copy()
            stored = links.walks.of_head(head, link.relation + count * back)
            stored = stored[(stored < kinds.entity_count) & (stored != own)]
            scores[stored] = -np.inf
            found.append((1 + int((scores > scores[own]).sum()), len(scores) - len(stored)))
    return found


# Words


def named(vocabulary: Vocabulary, entity: int) -> str:
    """An entity as it stands in a sentence: its label, or the last part of its name."""
    return words.short(vocabulary.label(entity))


def said(vocabulary: Vocabulary, relation: int) -> str:
    """A relation as it stands in a sentence."""
    return words.short(vocabulary.relations[relation]).replace("_", " ")


def ordinal(number: int) -> str:
    """A rank in words.

    >>> [ordinal(number) for number in (1, 3, 12, 22)]
    ['first', 'third', '12th', '22nd']
    """
    if number <= 3:
        return ("first", "second", "third")[number - 1]
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def stated(vocabulary: Vocabulary, link: IdLink) -> str:
    """A link in labels."""
    subject, object_ = (named(vocabulary, end) if end >= 0 else "?" for end in (link.subject, link.object))
    return f"{subject} {said(vocabulary, link.relation)} {object_}"


# How well an entity fits as the subject or the object of a relation, in counts instead of logits

# The counts are those that links/kinds.py judges by: how many entities share a trait, and how many of them have links
# in the direction that is asked for. The entity's own links in that direction are left out, as they are there.


CLEARLY = 1.5
"""A trait speaks for links, or against them, if it makes them so many times more or less frequent."""


@dataclass(frozen=True)
class TraitCount:
    """One trait of an entity: how many other entities share it, and how many of these have such links."""

    direction: int
    """The trait: links in this direction (relation ids to 2R, inverses from R), ..."""
    tail: int | None
    """... to this entity, if not to any."""
    with_links: int
    entities: int


@dataclass(frozen=True)
class KindFit:
    """How an entity fits as the head of a direction."""

    typical: int
    """Traits that at least half of the entities with links in the direction have."""
    shared: int
    """Those of them that this entity has, too."""
    best: TraitCount | None
    """Its trait that speaks most for such links, where one does."""
    worst: TraitCount | None
    """Its trait that speaks most against them, where one does."""


def kind_fit(kinds: Kinds, traits: Traits, entity: int, direction: int) -> KindFit:
    """How ``entity`` fits as the head of a link in ``direction``. ``traits`` are those of the graph that is asked."""
    directions = 2 * kinds.relation_count
    place = slice(traits.offsets[entity], traits.offsets[entity + 1])
    every, about = traits.traits[place], traits.about[place]
    own = every[about != direction]
    # The entity itself was counted if it has such links.
    itself = int(bool((every == direction).any()) and entity < kinds.entity_count)
    with_links = np.maximum(kinds.together[own, direction] - itself, 0)
    entities = np.maximum(kinds.sizes[own] - itself, 0)
    base = (kinds.sizes[direction] + 0.5) / (kinds.entity_count + 1.0)
    shares = (with_links + base) / (entities + 1.0)

    def counted(number: int) -> TraitCount:
        trait = int(own[number])
        tail = None if trait < directions else int(kinds.links[trait - directions] % kinds.entity_count)
        return TraitCount(int(about[about != direction][number]), tail, int(with_links[number]), int(entities[number]))

    best = worst = None
    if len(own):
        first, last = int(shares.argmax()), int(shares.argmin())
        best = counted(first) if shares[first] > CLEARLY * base and with_links[first] > 0 else None
        worst = counted(last) if shares[last] < base / CLEARLY else None
    typical = np.flatnonzero(kinds.typical(direction))
    return KindFit(len(typical), int(np.isin(typical, own).sum()), best, worst)
