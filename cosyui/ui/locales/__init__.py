"""The words of the page, one module per language with the same keys."""
