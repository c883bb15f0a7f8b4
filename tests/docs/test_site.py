"""What the site's build does to a page besides what MkDocs does."""

import pytest
from markdown_files import ROOT
from pages.site import BROUGHT, fetched_elsewhere, links_inside, with_breaks


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://example.org/a.js"></script>',
        "<script async src=//example.org/a.js></script>",
        '<img alt="a" src="http://example.org/a.png">',
        '<link href="https://example.org/a.css" rel="stylesheet">',
        '<link rel="preconnect" href="https://example.org" crossorigin>',
    ],
)
def test_what_a_browser_fetches_from_elsewhere_is_found(html):
    """Scripts, pictures, styles and early connections to another server."""
    assert "//example.org" in fetched_elsewhere(f"<p>a</p>{html}<p>b</p>")


@pytest.mark.parametrize(
    "html",
    [
        '<a href="https://example.org">a</a>',
        '<script src="assets/a.js"></script>',
        '<img src="../pictures/a.svg">',
        '<link rel="canonical" href="https://example.org/">',
        '<code>src="https://example.org"</code>',
    ],
)
def test_links_and_own_files_are_none_of_it(html):
    """A reader may click, and the site may fetch what is its own."""
    assert fetched_elsewhere(html) is None


def test_links_lead_inside_the_site():
    """From docs/ to files beside it, and from these into docs/."""
    assert "[a](changelog.md#b)" == links_inside("[a](../CHANGELOG.md#b)", "plan.md")
    assert "[a](plan.md)" == links_inside("[a](docs/plan.md)", "changelog.md")
    assert "[a](plan.md)" == links_inside("[a](plan.md)", "doctor.md")


def test_brought_files_are_there():
    """Whoever moves one finds it here rather than in the build."""
    for source in BROUGHT:
        assert (ROOT / source).is_file(), source


def test_long_names_break_behind_their_parts():
    """Where a line may end, and only in names that are long."""
    long_name = "kvcellar_unadmitted_requests_total"
    broken = with_breaks(f"<td><code>{long_name}</code></td>")
    assert "kvcellar_<wbr>unadmitted_<wbr>requests_<wbr>total" in broken
    assert long_name in broken.replace("<wbr>", "")
    short = "<td><code>host_memory</code> and <code>a b_c_d e</code></td>"
    assert short == with_breaks(short)


def test_options_stay_on_one_line():
    """A browser breaks behind hyphens; what is long, or has none, is left as it was."""
    assert '<code class="whole">--output DIR</code>' == with_breaks(
        "<code>--output DIR</code>"
    )
    for html in (
        "<code>lazy</code>",
        "<code>kvcellar replay --model NAME --no-time</code>",
        "<pre><code>a-b\nc</code></pre>".replace("a-b", "a-b " * 9),
    ):
        assert html == with_breaks(html)
