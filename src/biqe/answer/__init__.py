"""Known and predicted answers, together.

predicted.py   a model's log-probabilities of a query's targets, and of single links
joint.py       several targets -> ranked tuples
remembered.py  what a model said about single links, so that nothing is asked twice
rank.py        the same for any pattern: cycles, separate parts, targets that look alike
pinned.py      queries whose only constants are in their conditions
evidence.py    which patterns of a filled query the graph holds, and which are missing
propose.py     ranked rows that the graph does not hold, with what they rest on
combine.py     known tuples first, then predicted ones that are not known; the sides of a UNION
answering.py   a question: rows, a verdict, or a count
choose.py      which of several models answers
result.py      Answers and Row: what a user gets, in names
rows.py        what the answers with entities and those with values share
marginals.py   what a model says about one variable alone
terms.py       rows of values: COUNT, and SPARQL beyond the subset
formats.py     text table, JSON, SPARQL JSON, CSV, TSV, SPARQL XML
"""
