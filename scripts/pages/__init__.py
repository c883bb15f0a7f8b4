"""Pages of docs/ made from the code; ``scripts/render_docs.py`` writes them."""
