"""A knowledge graph at rest: read from files, held in arrays, kept in a folder.

    files -> read.read_graph -> Splits -> folder.save / folder.load
                                  |-> split.split, statistics.statistics, search.find

``importer.import_files`` does all of it at once. Nothing here knows of queries or models.
"""

PLAIN = "urn:biqe:name:"
"""Namespace that stands for names that are no IRIs: ``:Rhine`` is ``<urn:biqe:name:Rhine>`` is the entity 'Rhine'."""
