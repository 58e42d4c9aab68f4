"""A text from outside to segments: screened, cleaned, put into spoken form, cut."""
