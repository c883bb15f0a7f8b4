"""Links between the project's pages lead somewhere, on a code host and on the site."""

import re
import urllib.parse

import pytest
from markdown_files import FILES, ROOT, anchors, links, name_of, prose

each_file = pytest.mark.parametrize("path", FILES, ids=name_of)


@each_file
def test_links_lead_to_files_and_headings(path):
    """A relative link names a file of the tree, and a heading that is in it."""
    for link in links(path.read_text(encoding="utf-8")):
        address, _, anchor = link.partition("#")
        if urllib.parse.urlsplit(link).scheme:
            continue
        target = (path.parent / address).resolve() if address else path
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


@each_file
def test_links_to_elsewhere_are_well_formed(path):
    """They are https with a host; nobody asks whether it answers."""
    for link in links(path.read_text(encoding="utf-8")):
        parts = urllib.parse.urlsplit(link)
        if parts.scheme:
            assert (parts.scheme, bool(parts.hostname)) == ("https", True), link


@each_file
def test_pages_that_are_named_are_there(path):
    """A page that is named without a link, as ``docs/plan.md``, exists too."""
    text = prose(path.read_text(encoding="utf-8"))
    folders = "docs|scripts|benchmarks|dashboards"
    for name in re.findall(rf"(?<![\w/])(?:{folders})/[\w.-]+", text):
        assert (ROOT / name.rstrip(".")).exists(), name


def test_every_page_is_in_the_sites_navigation():
    """A page that nobody can find is as good as none."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r": ([\w-]+\.md)$", navigation, re.MULTILINE))
    pages = {path.name for path in FILES if path.parent == ROOT / "docs"}
    assert pages | {"changelog.md", "contributing.md"} == listed


def test_anchors_are_those_of_both():
    """Punctuation goes, and a heading that the two would name apart counts for none."""
    text = "# Hit rate 0 %\n## `kvcellar why`, said\n## A & B\n```\n# no\n```\n"
    assert {"kvcellar-why-said"} == anchors(text) - {"hit-rate-0-"}
    assert [] == links("`[a](b)`\n```\n[c](d)\n```\n")
    assert ["d.md#e"] == links("[c `x`](d.md#e)")
