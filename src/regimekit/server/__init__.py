"""Live: streams behind HTTP, each with its own model, and a page that shows them.

An observation goes one way through the service:

    body -> rows (bodies) -> lane of its stream (ingest) -> model in a worker process (worker)
         -> one transaction with outputs, events and snapshot (storage.writer) -> acknowledged

Models see observations in the order in which they are stored, and a model's state is a function
of its snapshot and the stored observations after it. So a process may die at any point: what was
acknowledged is stored, what is stored is replayed, and nothing is learnt twice.
"""
