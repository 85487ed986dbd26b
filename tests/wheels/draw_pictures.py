"""Draws the pictures in `data/`: `python -m tests.wheels.draw_pictures`, with Pillow installed.

Another version of Pillow draws other letters, so references must be made anew after this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tests.wheels import png
from tests.wheels.prepare import DATA, LINE_HEIGHT, LINES

_PROSE = (
    "A model becomes a session in a few stages,",
    "and each of them prints what it makes. Sizes",
    "are polynomials; an index map is a tuple of",
    "such expressions, and most reshapes cancel",
    "by arithmetic alone. Layout operations are",
    "index maps whose body is one load.",
)


def lines() -> Any:
    """Lines of text under one another, each in a strip of its own."""
    picture = Image.new("RGB", (560, LINE_HEIGHT * len(LINES)), "white")
    pen = ImageDraw.Draw(picture)
    colours = ((0, 0, 0), (30, 40, 160), (140, 20, 20), (20, 90, 40))
    for row, (text, _) in enumerate(LINES):
        colour = colours[row % len(colours)]
        pen.text((8, LINE_HEIGHT * row + 4), text, fill=colour, font=ImageFont.load_default(24))
    return picture


def sign() -> Any:
    """White and yellow letters on a sign before a landscape, with grain as of a camera."""
    height, width = 240, 320
    y, x = np.mgrid[:height, :width]
    sky = np.stack([90 + y // 3, 140 + y // 4, 220 - y // 5], -1)
    ground = np.stack([70 + x // 8, 120 - y // 8, 40 + (x * y) // 4000], -1)
    picture = Image.fromarray(np.where(y[..., None] < 150, sky, ground).astype(np.uint8))
    pen = ImageDraw.Draw(picture)
    pen.ellipse((250, 15, 300, 65), fill=(250, 230, 120))
    pen.rectangle((40, 60, 280, 190), fill=(20, 70, 130), outline=(240, 240, 240), width=4)
    pen.text((62, 72), "HARBOUR", fill="white", font=ImageFont.load_default(42))
    pen.text((62, 134), "2 km east", fill=(250, 220, 60), font=ImageFont.load_default(34))
    block_sizes = np.random.default_rng(3).integers(-3, 4, (height // 2, width // 2, 1))
    pixels = np.asarray(picture) + block_sizes.repeat(2, 0).repeat(2, 1)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def puzzle() -> Any:
    """Turned letters of many colours scattered over stripes, as sign-in puzzles show them."""
    picture = Image.new("RGB", (344, 384), (235, 225, 200))
    pen = ImageDraw.Draw(picture)
    for step in range(0, 720, 24):
        pen.line((step, 0, step - 380, 384), fill=(215, 200 - step // 12, 190), width=8)
    places = ((40, 50), (210, 40), (120, 150), (260, 190), (50, 270), (190, 290))
    for number, (left, top) in enumerate(places):
        tile = Image.new("L", (72, 72))
        letter = "RKWBSE"[number]
        ImageDraw.Draw(tile).text((14, 2), letter, fill=255, font=ImageFont.load_default(52))
        tile = tile.rotate(25 * (number % 3 - 1))
        colour = (40 * number % 200, 30, 180 - 30 * number)
        picture.paste(colour, (left, top, left + 72, top + 72), tile)
    return picture


def page() -> Any:
    """A page of a document: title, prose, a figure with its caption, a table."""
    picture = Image.new("RGB", (456, 600), "white")
    pen = ImageDraw.Draw(picture)
    pen.text((70, 24), "On the layout of pages", fill="black", font=ImageFont.load_default(30))
    body = ImageFont.load_default(17)
    for row, text in enumerate(_PROSE):
        pen.text((40, 80 + 22 * row), text, fill="black", font=body)
    pen.rectangle((90, 235, 366, 375), fill=(225, 235, 245), outline="black")
    heights = (40, 95, 60, 120, 80)
    for bar, high in enumerate(heights):
        place = (115 + 50 * bar, 370 - high, 145 + 50 * bar, 370)
        pen.rectangle(place, fill=(60 + 35 * bar, 90, 170))
    small = ImageFont.load_default(14)
    pen.text((120, 382), "Figure 1. Five bars of five heights.", fill="black", font=small)
    pen.text((150, 420), "Table 1. Sizes in bytes.", fill="black", font=small)
    for row in range(6):
        pen.line((60, 445 + 22 * row, 396, 445 + 22 * row), fill="black", width=1)
        for column in range(4) if row < 5 else ():
            text = f"{1000 + 137 * row * column}" if row and column else f"item {row + column}"
            pen.text((72 + 84 * column, 447 + 22 * row), text, fill="black", font=small)
    for column in range(5):
        pen.line((60 + 84 * column, 445, 60 + 84 * column, 555), fill="black", width=1)
    return picture


def main(folder: Path = DATA) -> None:
    """Draw all of them."""
    folder.mkdir(exist_ok=True)
    for draw in (lines, sign, puzzle, page):
        png.write(folder / f"{draw.__name__}.png", np.asarray(draw()))


if __name__ == "__main__":
    main()
