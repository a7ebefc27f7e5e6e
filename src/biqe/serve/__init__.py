"""A knowledge base over HTTP: a SPARQL 1.1 endpoint with predictions, a JSON API, and the page that uses it.

    start                   a socket, the exact store, the workers        config, workers, http_protocol
      │
    app                     the ASGI application, compression
      ├── metrics_and_logs  outermost: request ids, log, metrics, traces
      ├── guard             checks before each request: sizes, tokens, origins
      ├── protocol          /sparql and /update     requests, query_checks, federate, results
      ├── api               /api/...                schemas, views, page_metadata
      └── page_files        /                       the page, built from web/
      │                                             (all of them: error_response)
    engine                  many callers, one model
      │                     lanes, gil_scheduler, batching, exact_process, exact_messages
    live                    the graph that changes

Nothing here is imported before a server starts; ``biqe serve`` names the extra to install if a package is missing.
"""
