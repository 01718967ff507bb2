"""An emission for regimekit in a package of its own."""

from poisson_emission.emission import PoissonSettings, poisson_ihmm

__all__ = ["PoissonSettings", "poisson_ihmm"]
