"""One plain picture, or the same as JSON: for logs and bug reports."""

import dataclasses
import json

from kvcellar.monitor.follow import Follower
from kvcellar.monitor.make_view import Wish, make_view
from kvcellar.monitor.top.picture import draw, num_slots
from kvcellar.monitor.top.spans import plain


def picture_text(follower: Follower, width: int, height: int, now: float) -> str:
    """The picture without colours, and no blanks at the ends of its lines."""
    view = make_view(follower, Wish(num_slots=num_slots(width)), now)
    lines = draw(view, width, height, has_colour=False)
    return "\n".join(plain(text).rstrip() for text in lines).rstrip()


def picture_json(follower: Follower, now: float) -> str:
    """Every figure of the view, in plain types."""
    view = make_view(follower, Wish(), now)
    return json.dumps(dataclasses.asdict(view), indent=2)
