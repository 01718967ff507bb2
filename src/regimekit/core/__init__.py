"""The base class of models, the registry, exceptions, warnings and argument checks."""
