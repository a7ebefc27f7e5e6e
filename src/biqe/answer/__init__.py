"""Known and predicted answers, together.

execute.py          a bound question to rows: SELECT, ASK, COUNT; the sides of a UNION; their order
answers.py          Answers and Row: what a user gets, in names
terms.py            TermTable: rows of values, for COUNT and for SPARQL beyond the subset
result.py           Result: what every answer is to a writer; ResultTable: any other table
formats/            one file a format: table, json, sparql-json, csv, tsv, xml, html
explain_request.py  what an explanation of a row has to know
"""
