#!/usr/bin/env python3
"""tools/docs_site.py finds broken links and anchors, and what other servers bring.

Usage: site_check.py REPOSITORY
"""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "tools"))
import docs_site

with tempfile.TemporaryDirectory() as folder:
    site = pathlib.Path(folder)
    (site / "a.html").write_text(
        '<p id="here"><a href="b.html#there">1</a><a href="#here">2</a>'
        '<a href="b.html#gone">3</a><a href="c.html">4</a><img src="d.png">'
    )
    (site / "b.html").write_text(
        '<a id="there" href="https://example.org/e">5</a>'
        '<script src="https://example.org/f.js"></script>'
    )
    count, broken = docs_site.check(site)
want = ["a.html: b.html#gone (anchor)", "a.html: c.html", "a.html: d.png"]
want.append("b.html: https://example.org/f.js (from another server)")
assert (count, broken) == (5, want), (count, broken)
