"""The tests of irctest that the IRC door does not pass, each with a reason.

A key is a module, class and test, with the parameters in brackets; a key that ends with `*` covers
all tests that begin like it. A test that is not named here must pass, and a test that is named here must not.
"""

from typing import Final

EXCEPTIONS: Final[dict[str, str]] = {}
