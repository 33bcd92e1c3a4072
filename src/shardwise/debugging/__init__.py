"""Pictures and reports about programs that are run: where arrays lie."""
