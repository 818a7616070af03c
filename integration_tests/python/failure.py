"""Outcome of a check that does not hold."""

from __future__ import annotations


class Failure(Exception):
    """Something that was promised did not hold; the message says what was wanted and what came."""
