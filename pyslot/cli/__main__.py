"""`python -m pyslot.cli`"""

from pyslot.cli import main

main()
