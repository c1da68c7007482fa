"""The colours of the flame graphs, for all eyes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stackhound.formats.palette import FILLS, INK, MATCH, PAPER, QUIET, SHADES, fill_id, shade_id, shades

# What is left of linear RGB, from Machado, Oliveira and Fernandes 2009, table 1, severity 1.0.
SIGHTS = {
    "full": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
# Björn Ottosson's OKLab, where distances are about as large as they look; 0.02 can just be seen side by side.
TO_LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
EASILY_TOLD_APART = 0.055


def linear(colour):
    channels = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """WCAG 2."""
    dark, light = sorted(float(linear(colour) @ LUMINANCE) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def distance(one, other, sight):
    first, second = (
        TO_LAB @ np.cbrt(TO_LMS @ np.clip(SIGHTS[sight] @ linear(colour), 0, 1)) for colour in (one, other)
    )
    return float(np.linalg.norm(first - second))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_on_every_fill(theme):
    fills = [shade for fill in FILLS.values() for shade in shades(getattr(fill, theme))]
    assert min(contrast(INK, fill) for fill in [*fills, getattr(MATCH, theme)]) >= 4.5
    assert contrast(QUIET, PAPER) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHTS)
def test_fills_of_different_meaning_can_be_told_apart(theme, sight):
    fills = {key: getattr(fill, theme) for key, fill in FILLS.items()}
    distances = {pair: distance(fills[pair[0]], fills[pair[1]], sight) for pair in itertools.combinations(fills, 2)}
    nearest = min(distances, key=distances.get)
    assert distances[nearest] >= EASILY_TOLD_APART, nearest


def test_inlined_frames_have_a_colour_of_their_own_where_that_is_told_apart():
    assert fill_id("user", inlined=True) != fill_id("user", inlined=False)
    assert fill_id("kernel", inlined=True) != fill_id("kernel", inlined=False)
    assert fill_id("jit", inlined=True) == fill_id("jit", inlined=False)


def test_a_name_has_the_same_shade_everywhere_and_names_differ():
    assert shade_id("main") == 2
    assert {shade_id(f"name{number}") for number in range(20)} == set(range(len(SHADES)))
    assert len(shades("#804020")) == len(SHADES)
    assert shades("#804020")[0] == "#804020"
