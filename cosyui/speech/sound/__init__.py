"""Speech on its way out: levelled, joined, written."""
