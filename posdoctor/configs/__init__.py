"""Published configurations: what a `config.json` says of the positions of every layer."""

from posdoctor.configs.layers import Layer, from_config

__all__ = ["Layer", "from_config"]
