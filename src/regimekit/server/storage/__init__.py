"""Persistent state of the service: one module per pattern.

* `database`: engines, transactions, the lock for a single writer, backup and restore.
* `schema`: table definitions and numbered migrations.
* `streams`, `observations`, `tokens`: repositories. Functions take a `Connection` first, so the
  caller decides on the transaction.
* `unit_of_work`: the only writer of observations. Each commit holds the observations, their
  outputs, events, webhook messages and the model snapshot.
* `outbox`: webhooks and the queue of messages to deliver (transactional outbox).
"""
