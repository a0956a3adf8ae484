"""Shows, on servers it starts itself, that limits hold: `python -m pyslot.demo`. Needs the extras embedded and cli."""
