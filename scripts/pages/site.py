"""What becomes of a page on its way into the site; see ``scripts/docs_hook.py``."""

import re

BROUGHT = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "dashboards/grafana.json": "dashboards/grafana.json",
    "dashboards/alerts.yml": "dashboards/alerts.yml",
}
"""Files beside docs/ that come into the site: path from the top, and in the site."""

# What a browser fetches by itself. A link that somebody clicks may lead elsewhere.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?"
    r"\b(?:src|srcset|data)=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preconnect|icon|preload|prefetch))"
    r"[^>]*?\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)"
)
_LONG_NAME = re.compile(r"(?<=<code>)[^<> ]{30,}(?=</code>)")
_SHORT_CODE = re.compile(r"<code>(?=[^<>]{1,29}</code>)(?=[^<>]*-)")
_PART_END = re.compile(r"(_|::|/)(?!$)")


def links_inside(markdown: str, name: str) -> str:
    """Links between docs/ and the rest of the tree as links inside the site.

    Args:
        markdown: text of the page.
        name: of the page in the site.
    """
    if name in BROUGHT.values():
        return markdown.replace("](docs/", "](")
    for source, target in BROUGHT.items():
        markdown = markdown.replace(f"](../{source}", f"]({target}")
    return markdown


def with_breaks(html: str) -> str:
    """Let long names in code break behind their parts, and nowhere else.

    Short code stays on one line: a browser would break ``--json`` behind its hyphens.
    """
    html = _SHORT_CODE.sub('<code class="whole">', html)
    return _LONG_NAME.sub(lambda name: _PART_END.sub(r"\1<wbr>", name.group()), html)


def fetched_elsewhere(html: str) -> str | None:
    """An address on another server that a browser would ask by itself, or None."""
    found = _FETCHED.search(html)
    return None if found is None else found.group(1) or found.group(2)
