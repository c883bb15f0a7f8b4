"""One panel of the picture each: a title, and lines for a width and a height."""
