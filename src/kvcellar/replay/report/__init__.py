"""What came of a replay, for people and programs: text, JSON, CSV, one HTML page."""
