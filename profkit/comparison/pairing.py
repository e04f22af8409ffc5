"""Which scopes and which layers of the two sides are compared with each other."""

from __future__ import annotations

import dataclasses

import numpy as np

from profkit.comparison.align import PAIRING_SCOPE
from profkit.comparison.model import Reason
from profkit.model.census import KindCensus


def comparable_scopes(before: KindCensus, after: KindCensus) -> tuple[KindCensus, KindCensus, list[Reason]]:
    """Both sides without the scopes inside their layers, if they share none: a range that only one side pushed, or
    pushed under another name, must not tear its launches from their partners."""
    scopes = [set(c.slots["inside"]) - {""} for c in (before, after)]
    if scopes[0] & scopes[1] or not scopes[0] | scopes[1]:
        return before, after, []
    message = "The two sides name no scope inside their layers alike, so launches are paired by name and order alone."
    return _without_scopes(before), _without_scopes(after), [Reason("scopes-ignored", message)]


def _without_scopes(census: KindCensus) -> KindCensus:
    slots = census.slots.assign(**{PAIRING_SCOPE: ""})
    slots["occurrence"] = slots.groupby(["layer", "canonical", "op_kind"], sort=False).cumcount()
    return dataclasses.replace(census, slots=slots)


def layer_pairs(before: KindCensus, after: KindCensus) -> tuple[list[tuple[int, int]], tuple[list[int], list[int]]]:
    """Layers in order, selected with selected and, where their numbers agree, the others with the others; and the
    layers of either side that are left without a partner."""
    pairs: list[tuple[int, int]] = []
    loose: tuple[list[int], list[int]] = ([], [])
    for wanted in (True, False):
        sides = [np.flatnonzero(c.layers["selected"].to_numpy() == wanted).tolist() for c in (before, after)]
        if len(sides[0]) == len(sides[1]):
            pairs += list(zip(*sides, strict=True))
        else:
            loose[0].extend(sides[0])
            loose[1].extend(sides[1])
    return sorted(pairs), loose
