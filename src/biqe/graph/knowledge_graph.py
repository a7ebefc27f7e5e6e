"""A knowledge graph at rest: a vocabulary, triples, an index and literals; and the splits of one graph.

Fingerprints are over links alone: a model is of a graph whatever its texts and numbers say.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biqe.errors import InvalidOption
from biqe.graph.index import Index, build_index
from biqe.graph.literals import Literals
from biqe.graph.triples import Triples, as_triples, union
from biqe.graph.vocabulary import Vocabulary
from biqe.graph.words import for_notebook, html_table

if TYPE_CHECKING:
    import pandas
    import rdflib

SHOWN = 20
"""Relations that a notebook shows of a graph."""
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, repr=False)
class Graph:
    """One set of triples over a vocabulary.

    Made by ``from_triples``, ``from_pandas``, ``from_rdflib``, ``from_pykeen`` or ``from_file``; ``biqe.open`` asks it
    and ``biqe.train`` learns from it.

    >>> graph = Graph.from_triples([("Bonn", "located_on", "Rhine"), ("Rhine", "flows_into", "North Sea")])
    >>> graph
    Graph(3 entities, 2 relations, 2 triples)
    >>> list(graph)
    [('Bonn', 'located_on', 'Rhine'), ('Rhine', 'flows_into', 'North Sea')]
    """

    vocabulary: Vocabulary
    triples: Triples
    """(n, 3) int32: subject, relation, object; sorted, without duplicates."""
    literals: Literals | None = None
    """Statements with a literal as object, which only SPARQL sees; None where there are none."""
    prefixes: Mapping[str, str] = field(default_factory=lambda: {"": ""}, compare=False)
    """Prefixes that queries may use without declaring them."""

    @classmethod
    def from_triples(cls, triples: Iterable[Sequence[Any]], *, labels: Mapping[Any, str] | None = None) -> Graph:
        """A graph of rows (subject, relation, object), which are names or numbers.

        A relation that leads to numbers or dates alone has values, which only SPARQL sees, unless its subjects are
        numbers, too.
        Duplicate rows count once. Rows with a missing value (None, NaN, an empty text) are left out, with a warning.
        ``labels`` says what to show for a name.

        >>> Graph.from_triples([("Q64", "P17", "Q183")], labels={"Q64": "Berlin"}).vocabulary.label(0)
        'Berlin'
        """
        from biqe.graph.from_python import graph_of_triples

        return graph_of_triples(triples, labels)

    @classmethod
    def from_pandas(
        cls,
        table: pandas.DataFrame,
        subject: Any = "subject",
        relation: Any = "relation",
        object: Any = "object",
        *,
        labels: Mapping[Any, str] | None = None,
    ) -> Graph:
        """A graph of three columns of a DataFrame, called ``subject``, ``relation`` and ``object``.

        Whole numbers are names without a decimal point, whatever their column's type. A relation that leads to numbers
        or dates alone has values, which only SPARQL sees, unless its subjects are numbers, too. Duplicate rows count
        once; rows with a missing value are left out, with a warning. ``labels`` says what to show for a name.

        >>> import pandas as pd
        >>> table = pd.DataFrame({"film": ["Alien", "Alien"], "how": ["year", "by"], "what": [1979, "Ridley Scott"]})
        >>> list(Graph.from_pandas(table, "film", "how", "what"))
        [('Alien', 'year', '1979'), ('Alien', 'by', 'Ridley Scott')]
        """
        from biqe.graph.from_python import graph_of_table

        return graph_of_table(table, (subject, relation, object), labels)

    @classmethod
    def from_rdflib(cls, graph: rdflib.Graph) -> Graph:
        """A graph of rdflib, with its prefixes; ``rdfs:label`` becomes what is shown for a name.

        >>> import rdflib
        >>> source = rdflib.Graph().parse(data="@prefix : <http://ex.org/> . :Bonn :on :Rhine .", format="turtle")
        >>> Graph.from_rdflib(source).prefixes[""]
        'http://ex.org/'
        """
        from biqe.graph.from_python import graph_of_rdflib

        return graph_of_rdflib(graph)

    @classmethod
    def from_pykeen(cls, triples: Any) -> Graph:
        """A graph of a TriplesFactory of PyKEEN, or of all parts of a Dataset together. Ids stay as they are.

        >>> from pykeen.datasets import Nations                     # doctest: +SKIP
        >>> Graph.from_pykeen(Nations().training)                   # doctest: +SKIP
        Graph(14 entities, 55 relations, 1,592 triples)
        """
        from biqe.graph.from_python import graph_of_pykeen

        return graph_of_pykeen(triples)

    @classmethod
    def from_file(cls, *paths: str | os.PathLike[str]) -> Graph:
        """A graph of files: RDF in any form, TSV, CSV or Parquet, or of a graph folder. Splits are joined.

        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     print("Bonn,on,Rhine", file=file, flush=True)
        ...     Graph.from_file(file.name)
        Graph(2 entities, 1 relation, 1 triple)
        """
        from biqe.graph.from_python import graph_of_files

        return graph_of_files(paths)

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the graph to a graph folder, which ``biqe.open``, ``biqe.train`` and all commands take.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as place:
        ...     Graph.from_triples([("Bonn", "on", "Rhine")]).save(f"{place}/kg")
        ...     Graph.from_file(f"{place}/kg")
        Graph(2 entities, 1 relation, 1 triple)
        """
        from biqe.graph.from_python import save

        save(self, folder, force=force)

    def as_splits(self) -> Splits:
        """The graph with all its triples in train."""
        return Splits(self.vocabulary, self.triples, literals=self.literals)

    def __len__(self) -> int:
        """Number of triples."""
        return len(self.triples)

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        """Triples in names."""
        entities, relations = self.vocabulary.entities, self.vocabulary.relations
        for subject, relation, object_ in self.triples.tolist():
            yield entities[subject], relations[relation], entities[object_]

    def __repr__(self) -> str:
        counts = {"entity": self.entity_count, "relation": self.relation_count, "triple": len(self.triples)}
        return f"Graph({', '.join(counted(count, noun) for noun, count in counts.items())})"

    def _repr_html_(self) -> str:
        relations = self.vocabulary.relations
        sizes = np.bincount(self.triples[:, 1], minlength=len(relations))
        rows: list[str | list[str]] = []
        for relation in np.argsort(-sizes, kind="stable")[:SHOWN].tolist():
            subject, _, object_ = self.triples[np.argmax(self.triples[:, 1] == relation)].tolist()
            example = (self.vocabulary.label(subject), relations[relation], self.vocabulary.label(object_))
            if sizes[relation]:
                rows.append([relations[relation], f"{sizes[relation]:,}", " ".join(example)])
        if len(relations) > SHOWN:
            rows.append(f"… and {counted(len(relations) - SHOWN, 'relation')} more")
        return for_notebook(html_table([repr(self)], ["relation", "triples", "such as"], rows))

    @property
    def entity_count(self) -> int:
        return len(self.vocabulary.entities)

    @property
    def relation_count(self) -> int:
        return len(self.vocabulary.relations)

    @cached_property
    def index(self) -> Index:
        """Neighbours, both ways; built on first use."""
        return build_index(self.triples, self.entity_count, self.relation_count)

    def objects(self, subject: int, relation: int) -> NDArray[np.int32]:
        """Objects o of stored triples (subject, relation, o), ascending; a view."""
        index = self.index
        start, stop = index.out_offsets[subject], index.out_offsets[subject + 1]
        low, high = np.searchsorted(index.out_relations[start:stop], [relation, relation + 1])
        return index.out_objects[start + low : start + high]

    def subjects(self, relation: int, object_: int) -> NDArray[np.int32]:
        """Subjects s of stored triples (s, relation, object_), ascending; a view."""
        index = self.index
        start, stop = index.in_offsets[object_], index.in_offsets[object_ + 1]
        low, high = np.searchsorted(index.in_relations[start:stop], [relation, relation + 1])
        return index.in_subjects[start + low : start + high]

    def holds(self, subject: int, relation: int, object_: int) -> bool:
        """Whether the triple is stored."""
        stored = self.objects(subject, relation)
        place = int(np.searchsorted(stored, object_))
        return place < len(stored) and int(stored[place]) == object_

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits over names, ids and triples."""
        return _digest(self.vocabulary, self.triples)


def counted(count: int, noun: str) -> str:
    """A number of things in words.

    >>> counted(1, "entity"), counted(1_200, "entity"), counted(0, "triple")
    ('1 entity', '1,200 entities', '0 triples')
    """
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


@dataclass(frozen=True)
class Splits:
    """train, valid and test triples under one vocabulary. valid and test may be empty.

    >>> graph = Graph.from_triples([("Bonn", "on", "Rhine"), ("Ulm", "on", "Danube")])
    >>> splits = Splits(graph.vocabulary, train=graph.triples[:1], test=graph.triples[1:])
    >>> list(splits["test"]), len(splits["complete"])
    ([('Ulm', 'on', 'Danube')], 2)
    """

    vocabulary: Vocabulary
    train: Triples
    valid: Triples = field(default_factory=lambda: as_triples([]))
    test: Triples = field(default_factory=lambda: as_triples([]))
    literals: Literals | None = None
    """Statements with a literal as object; known whatever the split, since nobody predicts them."""

    def __getitem__(self, split: str) -> Graph:
        """The graph of ``train``, ``valid`` or ``test`` alone, or of all three as ``complete``.

        Each graph is built once, so that its index is too.
        """
        if split not in self._graphs:
            if split == "complete":
                triples = union(self.train, self.valid, self.test)
            elif split in SPLITS:
                triples = getattr(self, split)
            else:
                raise InvalidOption(f"split must be one of {', '.join((*SPLITS, 'complete'))}. Got {split!r}")
            self._graphs[split] = Graph(self.vocabulary, triples, self.literals)
        return self._graphs[split]

    @cached_property
    def _graphs(self) -> dict[str, Graph]:
        return {}

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits over names, ids and the triples of every split."""
        return _digest(self.vocabulary, self.train, self.valid, self.test)


def _digest(vocabulary: Vocabulary, *parts: Triples) -> str:
    digest = hashlib.sha256(vocabulary.fingerprint.encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()[:16]
