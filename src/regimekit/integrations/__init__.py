"""regimekit's models in the shapes that other libraries expect: one thin module per library.

A module needs its library and nothing else: `pip install 'regimekit[river]'` and so on. It makes
models by name, feeds them through `predict` and `update`, keeps them as bytes, and does no
arithmetic of its own.
"""
