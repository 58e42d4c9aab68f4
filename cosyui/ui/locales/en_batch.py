"""English of the batch tab."""

LABELS = {
    "tab_batch": "Batch",
    "batch_file": "A file: CSV, JSON Lines or a dialogue as text",
    "batch_script": "Or a dialogue",
    "batch_script_placeholder": (
        "Anna: Did you hear the ferry?\nBen: Not yet. It leaves at half past six.\n\nThey walk down to the harbour."
    ),
    "batch_script_hint": (
        "“Name: words” on each line. A line without a name goes on with the one above; "
        "after an empty line the default voice speaks."
    ),
    "batch_file_hint": (
        "A CSV file names its columns in the first line: text, and if you like "
        "voice, name, instruction, speed, seed, language."
    ),
    "batch_voice": "Default voice",
    "batch_pause": "Pause, s",
    "batch_cast": "Who has which voice",
    "batch_start": "Make all lines",
    "batch_mine": "Your batches",
    "batch_none": "Your lines appear here while they are made: listen to each, download all with subtitles.",
    "batch_stop": "Stop",
    "batch_resume": "Resume",
    "batch_download": "Download ZIP",
    "batch_delete": "Delete",
    "batch_delete_sure": "Delete all of it",
}

LIVE = {
    "batch_voice_en": "Example, English",
    "batch_voice_zh": "Example, Chinese",
    "batch_problems": "{count} problems; nothing was started",
    "batch_problem_one": "One problem; nothing was started",
    "batch_problem_line": "Line {line}",
    "batch_problems_more": "And {count} more.",
    "batch_entry": "{time} · {done} of {total}",
    "batch_working": "Making the lines",
    "batch_stopped": "Stopped",
    "batch_paused": "Paused",
    "batch_done": "Done",
    "batch_counts": "{done} of {total} lines, {seconds:.1f} s of speech",
    "batch_counts_failed": "{failed} failed",
    "batch_left": "about {time} left",
    "batch_packing": "Packing the ZIP file…",
    "batch_col_line": "Line",
    "batch_col_who": "Who",
    "batch_col_text": "Text",
    "batch_col_state": "State",
    "batch_col_seconds": "s",
    "batch_play": "Play line {line}",
    "batch_line_waiting": "waiting",
    "batch_line_working": "at work",
    "batch_line_done": "done",
    "batch_line_failed": "failed",
    "batch_rows": "{first} to {last} of {total}",
}
