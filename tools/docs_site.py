#!/usr/bin/env python3
"""Makes the site of the documents, build/site, and checks its links.

    python tools/docs_site.py

Pages are those of docs/ and of the project (README.md, CHANGELOG.md, ...).
Source files that pages link to are copied along; a link to a folder becomes
plain text. MkDocs makes the pages and the Python reference, Doxygen the C++
reference. Every link of the finished site must lead to a file, and every anchor
of a page to an element of it, and nothing may be loaded from another server: the
number of links is printed, and 1 returned if one is broken. Needs the environment
of tools/publish-requirements.txt, doxygen and npm.
"""

import html
import html.parser
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "build" / "site"

# Pages outside docs/, and where they go.
PROJECT = {
    "README.md": "project/readme.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
    "bench/README.md": "project/bench.md",
}

REFERENCE = {
    "reference/python.md": "# Python API\n\n`import locus_attn as locus`; "
    "[the tour](../python.md) shows these in use.\n\n::: locus_attn._locus\n",
    "reference/torch.md": "# PyTorch API\n\n`locus.torch`; [the tour](../pytorch.md) "
    "shows these in use.\n\n"
    "::: locus_attn.torch.functional\n\n::: locus_attn.torch.relative\n\n"
    "::: locus_attn.torch.rotary\n\n::: locus_attn.torch._modules\n",
}

# The headers of the C++ API: the sections of its overview, and their folders.
HEADERS = {
    "The library": "include/locus",
    "Encodings": "include/locus/encodings",
    "Ring attention": "ring/include/locus",
}

# What lets the search run on pages opened from a folder, where browsers refuse
# workers. The theme would load it from another server.
SHIM = "https://unpkg.com/iframe-worker/shim"
SHIM_PACKAGE = "iframe-worker@1.0.4"
SHIM_FILE = "assets/javascripts/iframe-worker.js"

LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def place(path: pathlib.Path) -> str | None:
    """Where a file of the repository is in the site; None for a folder."""
    name = path.relative_to(ROOT).as_posix()
    if name in PROJECT:
        return PROJECT[name]
    if name == "docs" or name == "docs/README.md":
        return "index.md"
    if path.is_dir():
        return None
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return f"source/{name}.txt"


def stage(path: pathlib.Path) -> None:
    """Copies a page, with its links turned to where their targets go."""
    target = PAGES / place(path)
    target.parent.mkdir(parents=True, exist_ok=True)

    def turn(match: re.Match) -> str:
        address, _, anchor = match[2].partition("#")
        if not address or ":" in address:
            return match[0]
        linked = (path.parent / urllib.parse.unquote(address)).resolve()
        if not linked.exists():
            sys.exit(f"{path.relative_to(ROOT)} links to {address}, which is not there")
        there = place(linked)
        if there is None:
            return "]\0"
        if there.startswith("source/"):
            (PAGES / there).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(linked, PAGES / there)
        near = os.path.relpath(PAGES / there, target.parent)
        return f"]({near}{'#' + anchor if anchor else ''})"

    text = LINK.sub(turn, path.read_text(encoding="utf-8"))
    # What is left of a link to a folder: its text.
    text = re.sub(r"\[([^\[\]]*)\]\0", r"\1", text)
    target.write_text(text, encoding="utf-8")


class Links(html.parser.HTMLParser):
    """The ids and the addresses of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.addresses: list[str] = []
        self.loaded: list[str] = []  # scripts, styles and pictures
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id" or (name == "name" and tag == "a"):
                self.ids.add(value)
            elif name in ("href", "src") and value and tag != "base":
                self.addresses.append(value)
                if tag in ("script", "img") or dict(attrs).get("rel") == "stylesheet":
                    self.loaded.append(value)


def check(site: pathlib.Path) -> tuple[int, list[str]]:
    """How many links a site has, and which of them are broken."""
    pages = {
        path.resolve(): Links(path.read_text(encoding="utf-8", errors="replace"))
        for path in site.rglob("*.html")
    }
    count, broken = 0, []
    for path, page in pages.items():
        broken += [
            f"{path.relative_to(site.resolve())}: {address} (from another server)"
            for address in page.loaded
            if re.match(r"https?:|//", address)
        ]
        for address in page.addresses:
            if re.match(r"[a-z]+:", address) or path.name == "404.html":
                continue
            count += 1
            name, _, anchor = address.partition("#")
            name = urllib.parse.unquote(name.partition("?")[0])
            linked = (path.parent / name).resolve() if name else path
            if linked.is_dir():
                linked = linked / "index.html"
            known = pages.get(linked)
            anchor = urllib.parse.unquote(anchor)
            if not linked.exists():
                broken.append(f"{path.relative_to(site.resolve())}: {address}")
            elif anchor and known and anchor not in known.ids:
                broken.append(f"{path.relative_to(site.resolve())}: {address} (anchor)")
    return count, sorted(set(broken))


def bring_shim() -> None:
    """Puts the shim into the site, and makes its pages load it from there."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["npm", "pack", "--silent", SHIM_PACKAGE],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (archive,) = pathlib.Path(folder).glob("*.tgz")
        with tarfile.open(archive) as package:
            script = package.extractfile("package/shim/index.js")
            licence = package.extractfile("package/LICENSE")
            assert script and licence
            comment = b"/*\n" + licence.read() + b"*/\n"
            (SITE / SHIM_FILE).write_bytes(comment + script.read())
    for path in SITE.rglob("*.html"):
        text = path.read_text(encoding="utf-8", errors="replace")
        if SHIM in text:
            local = os.path.relpath(SITE / SHIM_FILE, path.parent)
            path.write_text(text.replace(SHIM, local), encoding="utf-8")


def cpp_overview() -> str:
    """The page of the C++ API: each header with the first sentence about it."""
    lines = [
        "# C++ API",
        "",
        "`#include <locus/locus.h>` brings everything into namespace `locus` except "
        "ring attention, which needs MPI and headers of its own. "
        "[All classes](../cpp/annotated.html), "
        "[all functions](../cpp/namespacelocus.html).",
    ]
    for section, folder in HEADERS.items():
        lines += ["", f"## {section}", ""]
        for path in sorted((ROOT / folder).glob("*.h")):
            source = path.read_text(encoding="utf-8").splitlines()
            comment = itertools.takewhile(lambda line: line.startswith("//"), source)
            about = " ".join(line.removeprefix("//").strip() for line in comment)
            sentence = html.escape(re.split(r"(?<=[.])\s", about)[0], quote=False)
            name = path.as_posix().partition("include/")[2]
            page = path.name.replace("_", "__").replace(".", "_8")
            lines.append(f"- [`{name}`](../cpp/{page}.html): {sentence}")
    return "\n".join(lines) + "\n"


def version() -> str:
    header = (ROOT / "include/locus/version.h").read_text(encoding="utf-8")
    return ".".join(re.findall(r"LOCUS_VERSION_\w+ (\d+)", header))


def main() -> None:
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.rmtree(SITE, ignore_errors=True)
    for path in [*sorted((ROOT / "docs").glob("*.md")), *map(ROOT.joinpath, PROJECT)]:
        stage(path)
    for folder in ("images", "pictures"):
        shutil.copytree(ROOT / "docs" / folder, PAGES / folder)
    for name, text in {**REFERENCE, "reference/cpp.md": cpp_overview()}.items():
        (PAGES / name).parent.mkdir(exist_ok=True)
        (PAGES / name).write_text(text, encoding="utf-8")

    # First Doxygen: MkDocs copies its pages, and so knows links to them.
    settings = (ROOT / "docs/Doxyfile").read_text(encoding="utf-8")
    settings += f"PROJECT_NUMBER = {version()}\nOUTPUT_DIRECTORY = {PAGES}\n"
    subprocess.run(["doxygen", "-"], input=settings, text=True, cwd=ROOT, check=True)
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict"],
        cwd=ROOT,
        check=True,
        env={
            **os.environ,
            "NO_MKDOCS_2_WARNING": "1",
            "LOCUS_SITE_FOOTER": f"Locus {version()}, Apache-2.0",
        },
    )
    bring_shim()
    count, broken = check(SITE)
    print("\n".join(broken))
    pages = len(list(SITE.rglob("*.html")))
    print(
        f"{SITE.relative_to(ROOT)}: {pages} pages, {count} links, {len(broken)} broken"
    )
    sys.exit(1 if broken or count < 1000 else 0)


if __name__ == "__main__":
    main()
