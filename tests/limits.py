"""How long a test waits for what must come. It is no pause: whoever waits goes on as soon as it has come.

It is far above what anything needs where nothing else runs, for a machine may be busy with something else.
It says nothing of how quick anything is: no test does.
"""

from typing import Final

LIMIT_S: Final = 30.0
