#!/usr/bin/env python3
"""Checks the book of the pages, and writes `llms.txt`.

    .ci/book.py            # writes llms.txt anew
    .ci/book.py --check    # every page is in docs/SUMMARY.md, every link leads to a file and a heading, the README is short, llms.txt up to date
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
README_LINES = 120
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def plain(text):
    """The text without its fenced blocks."""
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    titles = (re.sub(r"[`*]|\]\([^)]*\)|\[", "", title) for title in HEADING.findall(plain(text)))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def faults_of(page):
    """Links of a page that lead nowhere."""
    for link in LINK.findall(plain(page.read_text())):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{page.relative_to(ROOT)}: {link} leads to no file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
            yield f"{page.relative_to(ROOT)}: {link} leads to no heading"


def pages():
    """Title and path of each page of the book, in order."""
    return re.findall(r"^- \[([^\]]+)\]\(([^)]+)\)", (DOCS / "SUMMARY.md").read_text(), re.MULTILINE)


def llms():
    """`llms.txt`: the pages for a reader that is a model."""
    lines = ["# Relight", "", "> A service that relights failed model and tool calls in flight: it classifies failures, retries, fails over,"]
    lines += ["> keeps streams and tool calls whole, over gRPC and the protocols of OpenAI and Anthropic.", "", "## Pages", ""]
    lines += ["- [README](README.md)"]
    lines += [f"- [{title}](docs/{path})" for title, path in pages()]
    lines += ["- [Contract](proto/relight/v1)", "- [A judgement of gateways](crates/relight-lab/README.md)"]
    return "\n".join(lines) + "\n"


def main():
    if sys.argv[1:] != ["--check"]:
        (ROOT / "llms.txt").write_text(llms())
        return 0
    listed = {path for _, path in pages()}
    faults = [f"docs/{page.name} is not in docs/SUMMARY.md" for page in sorted(DOCS.glob("*.md"))
              if page.name not in listed | {"SUMMARY.md"}]
    checked = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "crates/relight-lab/README.md", *sorted(DOCS.glob("*.md"))]
    for page in checked:
        faults += faults_of(page)
    if len((ROOT / "README.md").read_text().splitlines()) > README_LINES:
        faults.append(f"README.md is longer than {README_LINES} lines; what teaches has a page in docs/")
    if (ROOT / "llms.txt").read_text() != llms():
        faults.append("llms.txt is stale; `.ci/book.py` writes it anew")
    print("\n".join(faults) or f"{len(checked)} pages, no link leads nowhere")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
