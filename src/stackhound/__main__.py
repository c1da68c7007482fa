"""``python -m stackhound`` is ``stackhound``; it ends as Python does, with what others (coverage) left to do there."""

import sys

from stackhound.cli.main import main

sys.exit(main())
