"""`python -m onejob.cli` is the command `onejob`."""

import sys

from . import main

sys.exit(main())
