"""A knowledge base over HTTP: a SPARQL 1.1 endpoint with predictions, a JSON API, and the page that uses it.

    start             a socket, the exact store, the workers           config, workers, wire
      │
    app               one ASGI application out of the parts            openapi
      ├── observe     around everything: ids, log, numbers             telemetry
      ├── guard       before everything: sizes, tokens, origins        tokens, refusal
      ├── protocol    /sparql and /update       requests, prologue, measure, federate, negotiate, results, description
      ├── api         /api/...                  schemas, views, draw, facts
      └── page_files  /                         the page, built from web/
      │
    engine            many callers, one model                lanes, floor, batching, exact_process, exact_messages
      │
    live              the graph that changes

Nothing here is imported before a server starts; ``biqe serve`` says which extra to install where a package is missing.
"""
