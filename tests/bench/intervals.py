"""How wide a forecast's interval must be, from how far forecasts of published steps were off: split conformal prediction, which
assumes nothing but that the next step is one like these."""

import math

COVERED = 0.8


def width(errors):
    """The share by which at most one forecast in five is off, from errors as shares of the step."""
    sizes = sorted(map(abs, errors))
    return sizes[min(len(sizes), math.ceil((len(sizes) + 1) * COVERED)) - 1]


def held_out(errors):
    """How many errors of each group lie within the width that those of all others give. errors: by group."""
    inside = 0
    for group, own in errors.items():
        at = width([error for other, some in errors.items() if other != group for error in some])
        inside += sum(abs(error) <= at for error in own)
    return inside


def summary(errors):
    every = [error for some in errors.values() for error in some]
    mean = sum(map(abs, every)) / len(every)
    return (f"mean error {100 * mean:.1f} % of the step; four of five are within {100 * width(every):.1f} %, and "
            f"{held_out(errors)} of {len(every)} within what the other groups give")
