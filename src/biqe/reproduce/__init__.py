"""Every table of the paper again: recipes, a queue of jobs that can be interrupted, results, tables.

Files, in reading order::

    recipe.py      a table, and what is trained for each of its rows: TOML, checked
    recipes/       the recipes, <table>/<recipe>.toml, with the published figures
    job.py         a recipe with a seed: what is done, under which name
    queue.py       which jobs were begun, done or failed; written whole after every change
    steps.py       open the benchmark, make the graph folder, train or go on training, load the model
    work.py        what a job does once its model is trained: rank, analyse, count
    result.py      the record of one job, results/<table>/<recipe>/seed-<n>.json
    runner.py      a queue worked off
    view.py        results beside published figures: means, deviations, rows that were not run
    layout.py      a view as text of 80 columns, as Markdown, as JSON
"""
