"""Reads PNG and SVG files well enough to tell a picture from a blank."""

import pathlib
import struct
import xml.etree.ElementTree as ElementTree
import zlib


def png_pixels(path):
    """Width, height and the set of colours (of the upper part) of an 8-bit PNG."""
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", "not a PNG"
    at, header, body = 8, None, b""
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, chunk = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        (crc,) = struct.unpack(">I", data[at + 8 + size : at + 12 + size])
        assert crc == zlib.crc32(kind + chunk), f"bad checksum in {kind}"
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", chunk)
        elif kind == b"IDAT":
            body += chunk
        at += 12 + size
    assert kind == b"IEND", "cut short"
    width, height, depth, colour = header[:4]
    assert depth == 8 and colour in (2, 3, 6) and header[6] == 0, header
    channels = {2: 3, 3: 1, 6: 4}[colour]
    return width, height, _colours(zlib.decompress(body), width, height, channels)


def _colours(raw, width, height, channels):
    stride = width * channels
    assert len(raw) == height * (stride + 1)
    before, colours = bytearray(stride), set()
    # Rows build on the rows before them; the upper ones reach well into the
    # picture, and undoing the filters of all would take a minute.
    for y in range(min(height, 240)):
        kind = raw[y * (stride + 1)]
        row = bytearray(raw[y * (stride + 1) + 1 : (y + 1) * (stride + 1)])
        for n in range(stride):
            left = row[n - channels] if n >= channels else 0
            up = before[n]
            corner = before[n - channels] if n >= channels else 0
            if kind == 1:
                row[n] = (row[n] + left) & 255
            elif kind == 2:
                row[n] = (row[n] + up) & 255
            elif kind == 3:
                row[n] = (row[n] + (left + up) // 2) & 255
            elif kind == 4:
                p = left + up - corner
                nearest = min(
                    (abs(p - left), 0, left),
                    (abs(p - up), 1, up),
                    (abs(p - corner), 2, corner),
                )
                row[n] = (row[n] + nearest[2]) & 255
        before = row
        # Every fourth row and pixel is enough to see colours.
        if y % 4 == 0:
            colours.update(
                bytes(row[n : n + channels]) for n in range(0, stride, 4 * channels)
            )
    return colours


def svg_text(path):
    """All text of an SVG file; raises if it is not one."""
    root = ElementTree.parse(path).getroot()
    assert root.tag.endswith("svg"), root.tag
    return " ".join(
        " ".join(e.itertext()) for e in root.iter() if e.tag.endswith("text")
    )
