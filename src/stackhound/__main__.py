"""``python -m stackhound`` is ``stackhound``."""

import sys

from stackhound.cli.main import main

sys.exit(main())
