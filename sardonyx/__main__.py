"""`python -m sardonyx` is the `sardonyx` command."""

import sys

from sardonyx.cli.main import main

sys.exit(main())
