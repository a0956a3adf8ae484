"""`python -m pyslot.demo`"""

import sys

try:
    from pyslot.demo.tour import main
except ModuleNotFoundError as error:
    sys.exit(f"the demo needs the package {error.name!r}: pip install 'pyslot-limits[cli,embedded]'")

if __name__ == "__main__":
    sys.exit(main())
