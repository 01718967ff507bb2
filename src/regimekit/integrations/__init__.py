"""Adapters of regimekit's models to other libraries: one module per library.

Each module needs its library, installed by an extra: `pip install 'regimekit[river]'` and so on.
Adapters create models by name, call `predict`, `update` and `run`, and are pickled through
`to_bytes`. They contain no numerical code of their own.
"""
