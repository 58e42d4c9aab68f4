"""English of the tab with past takes: labels, and what the server says there."""

LABELS = {
    "tab_history": "History",
    "past_takes": "Your takes",
    "past_search": "Search in the texts",
    "past_search_placeholder": "A word or a part of one",
    "past_starred": "Favourites only",
    "past_reuse": "Use again",
    "past_remove": "Delete",
    "past_clear": "Delete all my takes",
    "past_clear_sure": "Really delete all, favourites too",
    "past_choose": "Choose a take to hear it, use it again, keep it or delete it.",
    "past_hint": (
        "Only you see them. Files are deleted after a while, favourites stay; what is deleted here is gone at once, "
        "with its clip."
    ),
}

LIVE = {
    "past_none": "Nothing yet: takes that you make appear here.",
    "past_nothing_found": "None of your takes is like that.",
    "past_rows": "{first} to {last} of {total}",
    "past_open": "Hear this take",
    "past_star": "Keep as a favourite",
    "past_unstar": "No favourite any more",
    "past_expired": "expired",
    "past_expired_note": (
        "The file was cleaned up. Use the take again: the same text, voice and seed make the same sound."
    ),
    "past_no_clip": "The clip of this take is not there any more: give it again, the rest is filled in.",
    "past_refilled": "Filled in as it was. Generate makes the same take again.",
    "past_removed": "Deleted.",
    "past_cleared": "{count} takes are deleted.",
    "past_first": "first sound {seconds:.2f} s",
    "past_rtf": "RTF {rtf:.2f}",
    "past_speed": "speed {speed:g}",
    "past_seed": "seed {seed}",
    "past_seconds": "{seconds:.1f} s",
    "past_transcript": "In the clip",
    "past_instruction": "How to say it",
}
