"""Parity of every part of the model with golden data, for any folder of that form."""
