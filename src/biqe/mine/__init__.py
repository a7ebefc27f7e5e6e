"""Queries out of a graph: random walks, paths, DAGs, and whole datasets of them.

Files, in reading order::

    walks.py       random walks, depth 2 to 5
    paths.py       a walk as a path query
    intersect.py   walks that meet as DAG queries with a tail
    online.py      fresh queries every epoch
    filters.py     true values of every target
    leakage.py     what splits must not share
    statistics.py  the paper's dataset table
    dataset.py     recipes: splits of a graph -> query sets
    folder.py      the mined set on disk
"""
