"""What all rooms use, and that knows nothing of them: types, checks, files, progress, text."""
