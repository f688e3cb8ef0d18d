"""pe_lib beside the libraries that people use, and beside what the machine allows."""
