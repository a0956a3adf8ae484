"""`python -m pyslot.demo`"""

import sys

try:
    from pyslot.demo.tour import main
except ModuleNotFoundError as error:
    package = (error.name or "").partition(".")[0]
    sys.exit(f"the demo needs the package {package!r}: pip install 'pyslot-limits[cli,embedded]'")

if __name__ == "__main__":
    sys.exit(main())
