"""Methods since 2022: for longer contexts, several axes, and models of 2024 to 2026."""
