"""`python -m groupwise.examples` prints the folder of the embedded run, so that a shell can use
or copy it.
"""

from groupwise.examples import trl_run

print(trl_run())
