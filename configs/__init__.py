"""Published configurations: what a `config.json` says of positions (chapter 14).

`configs.from_config` gives the position encoding of every layer; `python -m configs config.json`
says in words what the file means.
"""

from configs.layers import Layer, from_config

__all__ = ["Layer", "from_config"]
