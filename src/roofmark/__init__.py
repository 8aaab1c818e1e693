"""Roofmark: is this GPU kernel, written by a model, good enough to ship?"""

__version__ = "0.1.0"
