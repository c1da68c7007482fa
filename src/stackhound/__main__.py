"""``python -m stackhound`` is ``stackhound``, but for its end, which runs what others (coverage) left to do there."""

import sys

from stackhound.cli.main import main

sys.exit(main())
