"""Written text to spoken text: numbers, dates, units and signs become words."""
