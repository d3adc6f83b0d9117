"""Loads: what topics hold beyond their tables, into the tables, each event once. All of it needs the extra `lake`."""

from moldau.model.extras import require

require("lake", __name__)
