"""Commands that build, refresh and describe the book; `make help` names them."""
