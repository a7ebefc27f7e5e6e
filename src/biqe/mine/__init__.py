"""Queries out of a graph: random walks, paths, DAGs, and whole datasets of them.

Files, in reading order::

    walks.py       random walks, depth 2 to 5, and a walk as a path query
    intersect.py   walks that meet as DAG queries with a tail; one unknown a depth
    filters.py     true values of every target
    leakage.py     what splits must not share
    statistics.py  the paper's dataset table
    dataset.py     recipes: splits of a graph -> query sets; and fresh queries for an epoch
    folder.py      the mined set on disk
"""
