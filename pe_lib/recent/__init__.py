"""Methods beside the classic ones: for longer contexts, several axes, and models since 2023."""
