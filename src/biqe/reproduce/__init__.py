"""The paper's tables again: recipes, a queue of jobs that can be interrupted, results, tables.

Files, in reading order::

    recipe.py      a table, and what is trained for each of its rows: TOML, checked
    recipes/       the recipes, <table>/<recipe>.toml, with the published figures
    job.py         a recipe with a seed: what is done, under which name
    work.py        what a job does: train or resume; then rank, analyse, count
    result.py      the record of one job, results/<table>/<recipe>/seed-<n>.json
    runner.py      the jobs done one after the other, and the record of their states
    tables.py      results beside published figures: text of 80 columns, Markdown, JSON
"""
