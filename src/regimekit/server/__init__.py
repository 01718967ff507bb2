"""HTTP service: streams of observations, each with its own model, and a page that shows them.

An observation passes these modules:

    request body -> `request_parsing` -> queue of its stream (`ingestion`)
        -> model in a worker process (`workers`, `model_cache`)
        -> one transaction with outputs, events and snapshot (`storage.unit_of_work`)
        -> response

A model processes observations in the order in which they are stored, and its state is determined
by its snapshot and the stored observations after it. So a process may be killed at any time: every
acknowledged observation is stored, stored observations are replayed, and none is processed twice.

Other modules: `app` (ASGI application and process), `*_routes` (HTTP routes), `schemas` (bodies),
`auth` (tokens and permissions), `event_stream` (server-sent events), `webhooks` (delivery of
events), `monitoring` (metrics and logs), `service` (start and stop), `cli` (commands).
"""
