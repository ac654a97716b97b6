"""The laboratory of groupwise: a trainer, worlds in which everything is exact, the theory of
both papers, and forecasts that are scored.
"""

__version__ = "0.2.0"
