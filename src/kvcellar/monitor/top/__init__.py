"""The picture of a view: lines of styled text, and the terminal that shows them."""
