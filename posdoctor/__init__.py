"""A doctor for positions.

Give `diagnose` a function, tables, a bias, a configuration or a model, and it says what the thing
does with positions, what is wrong, and how sure that is. `assert_sound` is the same for a test,
`from_config` gives what a published configuration means for every layer, `check_factory` holds what
makes a port's rotations against many of them, and `posdoctor` does all of it from a shell.
"""

from posdoctor.configs import Layer, from_config
from posdoctor.doctor import compare, diagnose
from posdoctor.factory import check_factory
from posdoctor.testing import assert_sound

__all__ = ["Layer", "assert_sound", "check_factory", "compare", "diagnose", "from_config"]
