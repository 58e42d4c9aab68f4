"""How the embedded voice was made: data from a teacher, training of the five networks, export. See README.md here."""
