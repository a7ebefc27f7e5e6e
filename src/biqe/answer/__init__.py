"""Known and predicted answers, together.

predicted.py   a model's log-probabilities of a query's targets, and of single links
joint.py       several targets -> ranked tuples
evidence.py    which patterns of a filled query the graph holds, and which are missing
combine.py     known tuples first, then predicted ones that are not known
result.py      Answers and Row: what a user gets, in names
formats.py     text table, JSON, SPARQL JSON, CSV, TSV, SPARQL XML
"""
