"""A hook of the site's build: what MkDocs and its strict mode do not do by themselves.

Files beside docs/ come into the site, so that a link works on a code host and on the
site alike; and a page that fetches anything from another server stops the build.
Source: MkDocs 1.6, "Hooks".
"""

import pathlib
import re
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Path from the top of the tree, and in the site.
_BROUGHT = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "dashboards/grafana.json": "dashboards/grafana.json",
    "dashboards/alerts.yml": "dashboards/alerts.yml",
}

# What a browser fetches by itself. A link that somebody clicks may lead elsewhere.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?"
    r"\b(?:src|srcset|data)=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preconnect|icon|preload|prefetch))"
    r"[^>]*?\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)"
)

_LONG_NAME = re.compile(r"(?<=<code>)[^<> ]{30,}(?=</code>)")
_PART_END = re.compile(r"(_|::|/)(?!$)")


def on_files(files: Files, config: Any) -> Files:
    """Add the files that stand beside docs/."""
    for source, target in _BROUGHT.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make links between docs/ and the rest of the tree links inside the site."""
    if page.file.src_uri in _BROUGHT.values():
        return markdown.replace("](docs/", "](")
    for source, target in _BROUGHT.items():
        markdown = markdown.replace(f"](../{source}", f"]({target}")
    return markdown


def on_page_content(html: str, **_: Any) -> str:
    """Let long names in tables break behind their parts, and nowhere else."""
    return _LONG_NAME.sub(lambda name: _PART_END.sub(r"\1<wbr>", name.group()), html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that makes the reader's browser ask another server."""
    found = _FETCHED.search(output)
    if found:
        address = found.group(1) or found.group(2)
        raise PluginError(f"{page.file.src_uri} fetches {address} from elsewhere")
    return output
