"""The project's Markdown files, cut into the pieces that tests look at."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
FILES = sorted(
    path
    for folder in (".", "docs", "benchmarks")
    for path in (ROOT / folder).glob("*.md")
)

_FENCE = re.compile(r"^( *)```[a-z]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`+[^`\n]+`+")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]*)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name_of(path):
    """Path from the top of the tree, for a test's name."""
    return str(path.relative_to(ROOT))


def blocks(text):
    """Every fenced block, without its indentation."""
    return [
        "\n".join(line.removeprefix(indent) for line in body.splitlines())
        for indent, body in _FENCE.findall(text)
    ]


def prose(text):
    """The text without fenced blocks."""
    return _FENCE.sub("", text)


def links(text):
    """Targets of all links and pictures; what stands in code is none."""
    return _LINK.findall(_CODE.sub("", prose(text)))


def anchors(text):
    """Anchors of all headings that a code host and the site call alike.

    Both take the heading in lower case without punctuation and with dashes for spaces;
    the site makes one dash of several, a code host does not.
    """
    found = set()
    for heading in _HEADING.findall(prose(text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        word = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        if "--" not in word:
            found.add(word)
    return found
