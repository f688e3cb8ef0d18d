"""Layers of pe_lib beside each other, and beside the libraries that people use."""
