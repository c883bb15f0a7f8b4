"""A hook of the site's build: what MkDocs and its strict mode do not do by themselves.

Files beside docs/ come into the site, so that a link works on a code host and on the
site alike; and a page that fetches anything from another server stops the build.
Source: MkDocs 1.6, "Hooks".
"""

import pathlib
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from pages.site import BROUGHT, fetched_elsewhere, links_inside, with_breaks

ROOT = pathlib.Path(__file__).resolve().parent.parent


def on_files(files: Files, config: Any) -> Files:
    """Add the files that stand beside docs/."""
    for source, target in BROUGHT.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make links between docs/ and the rest of the tree links inside the site."""
    return links_inside(markdown, page.file.src_uri)


def on_page_content(html: str, **_: Any) -> str:
    """Let long names in tables break behind their parts, and nowhere else."""
    return with_breaks(html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that makes the reader's browser ask another server."""
    address = fetched_elsewhere(output)
    if address is not None:
        raise PluginError(f"{page.file.src_uri} fetches {address} from elsewhere")
    return output
